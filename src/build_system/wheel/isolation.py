"""Builds in an environment that pip, uv or build makes for one build alone.

What lies there has a new path and new times in every build, and ninja goes by both: it would
compile everything again. So the build folder of the checkout keeps what the build reads, under
names with versions. torch's headers are copied there. CUTLASS's headers and nvcc are installed
there, where the machine has none: by a pip of the build's own, since a requirement of the build
would bring what the package of CUTLASS depends on, scipy and CUDA's bindings for Python among it.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .. import fail
from ..cutlass_headers import REQUIREMENT as CUTLASS
from ..missing_packages import missing_packages
from ..paths import KEPT, ROOT
from ..torch_library import TorchLibrary

TEMPORARY = re.compile(r"/(pip-build-env-|build-env-|builds-v\d+/)")


def is_temporary(path: str | Path) -> bool:
    return TEMPORARY.search(str(path)) is not None


def is_isolated() -> bool:
    """Only then is anything downloaded."""
    spec = importlib.util.find_spec("torch")
    return spec is not None and is_temporary(spec.origin or "")


def find_python() -> str:
    """The interpreter for what ninja runs: one that stays."""
    return sys._base_executable if is_temporary(sys.executable) else sys.executable


def make_environment() -> dict[str, str]:
    """In which that interpreter finds what the environment of this build holds."""
    if not is_temporary(sys.executable):
        return dict(os.environ)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def keep_torch(torch: TorchLibrary) -> TorchLibrary:
    """The same, by paths that stay."""
    if not is_temporary(torch.include):
        return torch
    folder = ROOT / KEPT / f"torch-{torch.version}"
    fill(folder / "include", lambda new: shutil.copytree(torch.include, new))
    # Nothing is compiled of the libraries: where they lie now is all that the link needs.
    lib = folder / "lib"
    lib.unlink(missing_ok=True)
    lib.symlink_to(torch.lib)
    return TorchLibrary(folder / "include", lib, torch.version)


def fetch_missing() -> None:
    """nvcc and the headers of CUTLASS, where the machine has none."""
    for requirement in missing_packages():
        name, _, version = requirement.partition("==")
        folder = ROOT / KEPT / f"{name.partition('[')[0]}-{version}"
        fill(folder, functools.partial(install, requirement))


def install(requirement: str, folder: Path) -> None:
    print(f"cutlass_fused: pip installs {requirement} into {KEPT}", flush=True)
    options = ["--no-deps"] if requirement == CUTLASS else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, requirement]
    if subprocess.run([*command, "--target", str(folder)]).returncode != 0:
        fail(f"pip did not install {requirement}", "its error above says why")


def fill(folder: Path, make) -> None:
    """Once: what was cut off is made anew."""
    if folder.is_dir():
        return
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    make(new)
    new.rename(folder)
