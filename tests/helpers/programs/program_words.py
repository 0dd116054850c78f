"""The table of words that programs are written in, as include/cutlass_fused/program/words.hpp has
it: those of elements, which print something."""

import pathlib
import re

from build_system.paths import ROOT

HEADER = ROOT / "include/cutlass_fused/program/words.hpp"


def read_words(header: pathlib.Path = HEADER) -> dict[str, str]:
    """Name -> signature: "ff>f", "fnn>f", "bff>f". A name that is listed twice is an error."""
    rows = re.findall(r'^ *\{"(\w+)", "([fbn]+>[fb])", "[^"]', header.read_text(), re.MULTILINE)
    words = dict(rows)
    assert words and len(words) == len(rows), "words.hpp lists a word twice, or none"
    return words
