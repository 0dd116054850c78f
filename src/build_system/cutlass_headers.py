"""Finds CUTLASS's headers: CUTLASS_PATH, else third_party/cutlass, else the package nvidia-cutlass.

Only headers are used, so the package is fine without its (large) dependencies.
"""

import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from . import fail
from .paths import KEPT, ROOT

OLDEST = (4, 2)
REQUIREMENT = "nvidia-cutlass==4.2.0.0"
REMEDY = (
    "set CUTLASS_PATH to a CUTLASS checkout of "
    f"{OLDEST[0]}.{OLDEST[1]} or newer, or run `pip install --no-deps {REQUIREMENT}`"
)


class CutlassHeaders(NamedTuple):
    include: Path
    util_include: Path
    version: str


def locate_cutlass() -> Path | None:
    """The root of the CUTLASS tree that the build would use."""
    if os.environ.get("CUTLASS_PATH"):
        return Path(os.environ["CUTLASS_PATH"])
    checkout = ROOT / "third_party/cutlass"
    if version_header(checkout).is_file():
        return checkout
    # Finding a top-level module does not import it: importing this one would need CUDA's bindings.
    spec = importlib.util.find_spec("cutlass_library")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))) / "source"
    kept = (ROOT / KEPT).glob("nvidia-cutlass-*/cutlass_library/source")
    return next(kept, None)


def find_cutlass() -> CutlassHeaders:
    root = locate_cutlass()
    if root is None:
        fail("the CUTLASS headers were not found", REMEDY)
    header = version_header(root)
    if not header.is_file():
        fail(f"{root} has no include/cutlass/version.h", REMEDY)
    version = read_version(header.read_text())
    text = ".".join(map(str, version))
    if version[:2] < OLDEST:
        fail(f"CUTLASS {text} in {root} is older than {OLDEST[0]}.{OLDEST[1]}", REMEDY)
    return CutlassHeaders(root / "include", root / "tools/util/include", text)


def version_header(root: Path) -> Path:
    return root / "include/cutlass/version.h"


def read_version(header: str) -> tuple[int, ...]:
    parts = (
        re.search(rf"#define\s+CUTLASS_{part}\s+(\d+)", header)
        for part in ("MAJOR", "MINOR", "PATCH")
    )
    return tuple(int(part[1]) if part else 0 for part in parts)
