"""A clock for builds: what a compiler takes, while one runs, for a file that is none of ours.

`CUTLASS_FUSED_CLOCK=1`, as `make build` has it, compiles that file among the library's, one time in
front of every third of those that take long. ninja's log says how long each time took, so that a
build on a slow or busy machine can be told from one of more work
(tests/kernels/test_build_time.py).
"""

import os
import re
from pathlib import Path

from .generated_sources import write_if_changed
from .paths import BUILD, GENERATED, ROOT

# CUTLASS's headers of kernels for 9.0: most of a build is such work, nvcc's front end at templates.
SOURCE = """\
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
"""
FLAGS = ["-arch=compute_90a"]
EVERY = 3


def is_asked_for() -> bool:
    return os.environ.get("CUTLASS_FUSED_CLOCK") == "1"


def write_source(folder: Path = ROOT / GENERATED) -> Path:
    write_if_changed(folder / "clock.cu", SOURCE)
    return GENERATED / "clock.cu"


def name_output(index: int) -> Path:
    return BUILD / "objects" / f"clock_{index}.ptx"


def read_times(log: Path = ROOT / BUILD / ".ninja_log") -> list[float]:
    """Seconds of each time, by the last line for it. A line is: start, end (ms), when the output
    was written, the output, a hash of the command."""
    if not log.is_file():
        return []
    line = r"^(\d+)\t(\d+)\t\d+\t(\S*objects/clock_\d+\.ptx)\t"
    found = re.findall(line, log.read_text(), re.MULTILINE)
    return list({name: (int(end) - int(start)) / 1e3 for start, end, name in found}.values())
