"""Finds nvcc and the toolkit around it.

CUDA_HOME or CUDA_PATH, else nvcc on PATH, else the packages that pip installed, else
/usr/local/cuda.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from . import fail
from .paths import KEPT, ROOT
from .torch_library import read_cuda

OLDEST = (12, 4)
# With nvcc alone the parts would mix versions, and nv/target would be missing.
REQUIREMENT = "cuda-toolkit[nvcc,nvvm,crt,cccl,cudart]==13.0.2"
USUAL_ROOT = Path("/usr/local/cuda")


def find_requirement() -> str | None:
    """The package with an nvcc for the torch that is there. pip has none before CUDA 13, whose
    libraries run on newer drivers only than a torch of CUDA 12 does."""
    cuda = read_cuda()
    return REQUIREMENT if cuda is None or cuda[0] >= 13 else None


def find_remedy() -> str:
    oldest = f"{OLDEST[0]}.{OLDEST[1]}"
    if find_requirement() is not None:
        return (
            f"install the CUDA toolkit {oldest} or newer and set CUDA_HOME, "
            f"or run `pip install '{REQUIREMENT}'`"
        )
    major, minor = read_cuda()
    return (
        f"install a CUDA toolkit {major} ({oldest} or newer), as torch's CUDA is {major}.{minor}, "
        f"and set CUDA_HOME; where the driver is 580 or newer, `pip install '{REQUIREMENT}'` does"
    )


class CudaToolkit(NamedTuple):
    nvcc: Path
    include: Path
    cudart: Path  # the static library: pip's toolkit has no libcudart.so to link
    version: tuple[int, int]

    def list_real_architectures(self) -> set[str]:
        return set(run(self.nvcc, "--list-gpu-code").stdout.split())


def locate_nvcc() -> Path | None:
    """The nvcc that the build would use; perhaps a wrapper script."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            return Path(os.environ[variable]) / "bin/nvcc"
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return Path(on_path)
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    candidates = [nvcc for folder in folders or () for nvcc in Path(folder).glob("cu*/bin/nvcc")]
    candidates.append(USUAL_ROOT / "bin/nvcc")
    candidates += (ROOT / KEPT).glob("cuda-toolkit-*/nvidia/cu*/bin/nvcc")
    return next((nvcc for nvcc in candidates if nvcc.is_file()), None)


def find_cuda_toolkit() -> CudaToolkit:
    found = locate_nvcc()
    if found is None:
        fail("nvcc was not found", find_remedy())
    if not found.is_file():
        fail(
            f"CUDA_HOME (or CUDA_PATH) is set, but there is no {found}",
            f"unset it, or {find_remedy()}",
        )
    nvcc, root = resolve_nvcc(found)
    version = read_version(run(nvcc, "--version").stdout)
    if version < OLDEST:
        fail(
            f"nvcc {version[0]}.{version[1]} ({nvcc}) is older than {OLDEST[0]}.{OLDEST[1]}",
            find_remedy(),
        )
    include = first_with("cuda_runtime.h", root, ("include", "targets/*/include"))
    library = first_with("libcudart_static.a", root, ("lib64", "lib", "targets/*/lib"))
    return CudaToolkit(nvcc, include, library / "libcudart_static.a", version)


def resolve_nvcc(found: Path) -> tuple[Path, Path]:
    """nvcc itself and the toolkit's root, which nvcc tells even through a wrapper script."""
    dryrun = run(found, "--dryrun", "-E", "-x", "cu", os.devnull).stderr
    settings = dict(re.findall(r"^#\$ (TOP|_HERE_)=(.*?)\s*$", dryrun, re.MULTILINE))
    if settings.keys() < {"TOP", "_HERE_"}:
        first_line = dryrun.strip().split("\n")[0]
        fail(f"{found} does not tell where its toolkit is ({first_line})", find_remedy())
    return Path(settings["_HERE_"], "nvcc").resolve(), Path(settings["TOP"]).resolve()


def first_with(name: str, root: Path, folders: tuple[str, ...]) -> Path:
    for folder in folders:
        for file in sorted(root.glob(f"{folder}/{name}")):
            return file.parent
    fail(f"the CUDA toolkit in {root} has no {name}", find_remedy())


def read_version(text: str) -> tuple[int, int]:
    match = re.search(r"release (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def run(*command: object) -> subprocess.CompletedProcess:
    words = list(map(str, command))
    try:
        return subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        fail(f"{words[0]} does not run ({error.strerror})", find_remedy())
