"""Finds torch without importing it: its headers (the LibTorch stable ABI) and its libraries."""

import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from . import fail

# The oldest torch that the built library runs with, also given to torch's headers, which then
# declare nothing newer. The library runs with any torch from this on, whichever it was built with.
OLDEST = (2, 10)
TARGET_VERSION = f"0x{OLDEST[0]:02x}{OLDEST[1]:02x}000000000000"
REMEDY = f"run `pip install 'torch>={OLDEST[0]}.{OLDEST[1]}'` in the environment that builds"


def read_cuda() -> tuple[int, int] | None:
    """The CUDA that torch was built for; None: for none, or there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    text = file.read_text() if file.is_file() else ""
    match = re.search(r"^cuda\b.*= '(\d+)\.(\d+)'", text, re.MULTILINE)
    return match and (int(match[1]), int(match[2]))


class TorchLibrary(NamedTuple):
    include: Path
    lib: Path
    version: str


def find_torch() -> TorchLibrary:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        fail("torch is not installed", REMEDY)
    version = importlib.metadata.version("torch")
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        fail(f"torch {version} is older than {OLDEST[0]}.{OLDEST[1]}", REMEDY)
    root = Path(spec.origin).parent
    if not (root / "lib/libtorch_cuda.so").is_file():
        fail(
            f"torch {version} in {root} was built without CUDA",
            "install a torch with CUDA, or set CUTLASS_FUSED_SKIP_KERNELS=1 to install "
            "for the CPU only",
        )
    return TorchLibrary(root / "include", root / "lib", version)
