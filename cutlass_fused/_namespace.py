"""The namespace of the ops: torch.ops.cutlass_fused, or another one that the library was built for.

Two versions of this package run side by side in a process if each has a namespace of its own
(CUTLASS_FUSED_OP_NAMESPACE of the build). The build writes its name into a file beside the library.
"""

import os
import pathlib

import torch

_FILE = "op_namespace.txt"
_USUAL = "cutlass_fused"


def library_path() -> pathlib.Path:
    """The library to load: CUTLASS_FUSED_LIBRARY if set, else the one beside this file."""
    override = os.environ.get("CUTLASS_FUSED_LIBRARY")
    return pathlib.Path(override) if override else _FOLDER / "libcutlass_fused.so"


def _read_namespace() -> str:
    try:
        return library_path().with_name(_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return _USUAL


_FOLDER = pathlib.Path(__file__).parent
NAMESPACE = _read_namespace()
ops = getattr(torch.ops, NAMESPACE)
