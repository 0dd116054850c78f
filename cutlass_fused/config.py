"""What this installation consists of, and why a kernel would be refused."""

import ctypes
import functools
import pathlib
import re
import warnings

import torch

from . import _library
from ._library import read_build_info, read_link_info
from ._namespace import ops
from .matmul import describe_kernels
from .precision import PRECISIONS
from .tuning import describe_tuning

_OLDEST_CAPABILITY = (8, 0)
# The driver that came with each major version of CUDA, and runs all of its minor versions.
_OLDEST_DRIVERS = {12: "525", 13: "580"}


@functools.cache
def read_driver() -> tuple[int, int] | None:
    """The newest CUDA that the GPU's driver runs, as (12, 4); None without a driver."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else (version.value // 1000, version.value % 1000 // 10)


def find_refusal(capability: tuple[int, int], build: dict | None) -> str | None:
    """Why no kernel runs on a GPU of this compute capability; None if kernels do."""
    if capability < _OLDEST_CAPABILITY:
        return "its compute capability is below 8.0, the oldest that the kernels are written for"
    if build is None:
        return "the library is not loaded"
    if (refusal := find_driver_refusal(build["cuda"])) is not None:
        return refusal
    if any(_covers(arch, capability) for arch in build["archs"]):
        return None
    if build["ptx"] is not None and _parse(build["ptx"]) <= capability:
        return None
    return (
        f"this build has code for {_describe_archs(build)} only; rebuild with CUTLASS_FUSED_ARCHS "
        f"naming {_format(capability)}"
    )


def find_driver_refusal(cuda: str) -> str | None:
    """Why the driver runs nothing of this version of CUDA, "13.0"; None if it does, or there is
    none. The library holds CUDA's runtime, so that torch's own may be older and run."""
    driver, needed = read_driver(), _parse(cuda)
    if driver is None or driver[0] >= needed[0]:
        return None
    oldest = _OLDEST_DRIVERS.get(needed[0], f"one for CUDA {needed[0]}")
    return (
        f"the driver runs CUDA {_format(driver)} at most, and this needs CUDA {needed[0]}: install "
        f"driver {oldest} or newer, or build with an nvcc of CUDA {driver[0]}"
    )


def show_config() -> str:
    """The installation in words.

    Versions of cutlass_fused, torch, CUTLASS and the CUDA compiler, the architectures that were
    compiled ("untested" where the kernels for one have never run), whether epilogues that users
    write run within products or, with the reason, behind them, how many kernels of common ones came
    with the library, the NVRTC that links others or why there is none, the folders where linked
    ones are kept, whether the library is loaded or else the reason, whether
    cutlass_fused.fp32_matmul has kernels in C++ or, with the reason, in Python, the GPUs found,
    each with its compute capability and the engines of its float32 products (see
    cutlass_fused.find_engine) or, where no kernel would run on it, why (also where the driver is
    older than the CUDA of the library or of torch), and for how many products this process uses a
    tile that autotune found, with the folder where these are kept.

    Returns the text and prints nothing. It needs neither a GPU nor the library.
    """
    from . import __version__

    build = read_build_info()
    lines = [f"cutlass_fused {__version__}", f"torch: {torch.__version__}"]
    if build is None:
        lines.append(f"library: not loaded: {_library.load_error()}")
        lines.append("CUTLASS, nvcc, architectures: unknown without the library")
    else:
        lines.append(f"library: {_library.library_path()}")
        lines.append(f"CUTLASS: {build['cutlass']}")
        lines.append(f"nvcc: {build['cuda']}")
        lines.append(f"architectures: {_describe_archs(build)}")
        lines.append(f"epilogues of users: {_describe_open_kernels(build)}")
        lines.append(f"  common ones: {_describe_common_kernels(build)}")
        lines += _describe_links(read_link_info())
    lines.append(f"fp32_matmul: {describe_kernels()}")
    return "\n".join([*lines, *_describe_gpus(build), describe_tuning()])


def _describe_gpus(build: dict | None) -> list[str]:
    with warnings.catch_warnings():  # of a driver that is too old, which is told below
        warnings.simplefilter("ignore")
        is_available = torch.cuda.is_available()
    if not is_available:
        return [f"GPU: {_describe_absence()}; CPU tensors run the reference implementation"]
    lines = []
    for index in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(index)
        refusal = find_refusal(capability, build)
        verdict = "kernels run" if refusal is None else f"no kernel runs: {refusal}"
        name = torch.cuda.get_device_name(index)
        lines.append(f"GPU {index}: {name}, compute capability {_format(capability)}: {verdict}")
        if refusal is None:
            lines.append(f"  float32 products: {_describe_engines(index)}")
    return lines


def _describe_absence() -> str:
    driver, cuda = read_driver(), torch.version.cuda
    if driver is None or cuda is None or driver[0] >= _parse(cuda)[0]:
        return "none found"
    return (
        f"none that torch can use: the driver runs CUDA {_format(driver)} at most, and torch is "
        f"built for CUDA {cuda}"
    )


def _describe_engines(device: int) -> str:
    """The engines of products with many numbers in a row."""
    find_engine = ops.find_engine
    try:
        return ", ".join(f"{p!r} by {find_engine(device, 1024, p)}" for p in PRECISIONS)
    except RuntimeError as error:  # whatever is wrong with the GPU, the rest is told
        return f"none, because {str(error).splitlines()[0]}"


def _describe_archs(build: dict) -> str:
    ptx = [] if build["ptx"] is None else [f"PTX of {build['ptx']}"]
    untested = build.get("untested", ())  # their own kernels never ran on such a GPU
    archs = [f"{arch} (untested)" if arch in untested else arch for arch in build["archs"]]
    return ", ".join([*archs, *ptx])


def _describe_open_kernels(build: dict) -> str:
    found = build.get("open_kernels")  # a library of an earlier version has none
    if isinstance(found, int):
        archs = build.get("open_archs", {})  # e.g. {"sm_90a": 53}
        of_archs = ", ".join(f"{count} of {arch}" for arch, count in archs.items())
        return f"within products, by {found} open kernels" + (of_archs and f": {of_archs}")
    return "behind products" + ("" if found is None else f": {found}")


def _describe_common_kernels(build: dict) -> str:
    found = build.get("common_kernels")  # a library of an earlier version has none
    if isinstance(found, int):
        return f"{found} kernels came with the library"
    return "no kernel came with the library" + ("" if found is None else f": {found}")


def _describe_links(info: dict | None) -> list[str]:
    if info is None:
        return []
    if info["nvrtc"] is None:
        nvrtc = f"there is none, and what is not linked yet runs by PyTorch: {info['nvrtc_error']}"
    else:
        nvrtc = f"{info['nvrtc']}, {info['nvrtc_path']}"
    cache = "not on disk: there is no home folder"
    if info["cache"] is not None:
        cache = _describe_folder(info["cache"])
    lines = [f"  NVRTC: {nvrtc}", f"  kept: {cache}"]
    linked = info["linked"]
    if pathlib.Path(linked["folder"]).is_dir():
        lines.append(f"  linked ahead of time: {_describe_folder(linked)}")
    return lines


def _describe_folder(found: dict) -> str:
    folder = pathlib.Path(found["folder"])
    if not folder.is_dir():
        return f"no kernel yet, in {folder}"
    if found["refusal"]:
        return f"nothing is read: {found['refusal']}"
    count = sum(not path.name.endswith(".new") for path in folder.iterdir())
    return f"{count} kernels, in {folder}"


def _covers(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for `arch` runs: within its major version, and not on older GPUs.

    The suffix of "9.0a" names what some kernels use beyond 9.0; the others run without it.
    """
    compiled = _parse(arch)
    return compiled[0] == capability[0] and compiled <= capability


def _parse(arch: str) -> tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d+)", arch).groups()
    return int(major), int(minor)


def _format(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
