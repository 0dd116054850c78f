"""The tool that reads machine code."""

import importlib.util
import shutil
from pathlib import Path

import pytest


def find_cuobjdump():
    """From the CUDA toolkit, else the one that Triton brings; skips where there is neither."""
    found = shutil.which("cuobjdump")
    if found is not None:
        return found
    spec = importlib.util.find_spec("triton")
    bundled = Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump" if spec else None
    if bundled is None or not bundled.is_file():
        pytest.skip("no cuobjdump: neither on PATH nor in triton")
    return str(bundled)
