"""Where the judges of the tests are found, which decide here too."""

import sys

from bench.measure.machine import ROOT

TESTS = ROOT / "tests"


def add_helpers() -> None:
    """From here on `import fuzz_one` and the other modules of tests/helpers work."""
    folders = [str(ROOT), str(ROOT / "src"), *map(str, sorted((TESTS / "helpers").glob("*/")))]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
