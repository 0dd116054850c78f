"""The namespace of the ops in torch.ops, as CUTLASS_FUSED_OP_NAMESPACE chooses it.

Only the files that register or call ops are compiled for it: kernels are those of all namespaces.
The Python package reads it from a file beside the library (cutlass_fused/_namespace.py).
"""

import os
import re
from pathlib import Path

from .. import fail
from ..paths import PACKAGE

VARIABLE = "CUTLASS_FUSED_OP_NAMESPACE"
USUAL = "cutlass_fused"
FILE = "op_namespace.txt"
# As C++ and Python have names; two underscores are C++'s own.
NAME = re.compile(r"(?!.*__)[A-Za-z_]\w*", re.ASCII)
# src/op_namespace.hpp is read in these.
READERS = (Path("src/ops"), Path("src/switch"), Path("src/launch/programs/by_pytorch.cpp"))


def choose_namespace() -> str:
    chosen = os.environ.get(VARIABLE) or USUAL
    if NAME.fullmatch(chosen) is None:
        fail(
            f"{VARIABLE} must be a name such as cutlass_fused_1a2b3c, got {chosen!r}", "set another"
        )
    return chosen


def namespace_flags(source: Path) -> list[str]:
    """For a C++ file: the macro, where the namespace is another one and the file reads it."""
    chosen = choose_namespace()
    is_reader = any(source.is_relative_to(each) for each in READERS)
    return [f"-D{VARIABLE}={chosen}"] if is_reader and chosen != USUAL else []


def write_file(folder: Path) -> None:
    """Into the folder of a library; the usual namespace has no file."""
    chosen, path = choose_namespace(), folder / FILE
    if chosen == USUAL:
        path.unlink(missing_ok=True)
    else:
        path.write_text(chosen + "\n")


def read_file(package: Path = Path(PACKAGE)) -> str:
    path = package / FILE
    return path.read_text().strip() if path.is_file() else USUAL
