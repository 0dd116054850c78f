"""Every compiler and linker flag, as lists of words."""

import shutil
from pathlib import Path
from typing import NamedTuple

from .architectures import Arch, shipped_ptx
from .cuda_toolkit import CudaToolkit
from .cutlass_headers import CutlassHeaders
from .paths import GENERATED, LIBRARY, SWITCH
from .torch_library import TARGET_VERSION, TorchLibrary
from .wheel import is_for_other_machines, old_libraries


class Tools(NamedTuple):
    """What was found on this machine."""

    toolkit: CudaToolkit
    cutlass: CutlassHeaders
    torch: TorchLibrary
    host_compiler: str
    archs: list[Arch]


def launcher() -> list[str]:
    """ccache, if it is on PATH. Only its depend mode is right for CUDA: its preprocessor sees one
    side of `#ifdef __CUDA_ARCH__`, and the plain mode then serves an object whose other side is
    stale; the depend mode compares every header that nvcc read."""
    return ["env", "CCACHE_DEPEND=1", "ccache"] if shutil.which("ccache") else []


def cuda_flags(tools: Tools) -> list[str]:
    return [
        *("-ccbin", tools.host_compiler),
        *("-O3", "-std=c++17", "-DNDEBUG"),
        *("--expt-relaxed-constexpr", "--expt-extended-lambda"),
        *("-Xcompiler", "-fPIC,-fvisibility=hidden"),
        *("-Xfatbin", "-compress-all"),
        *("-I", "include", "-I", "src"),
        *("-I", str(tools.cutlass.include), "-I", str(tools.cutlass.util_include)),
    ]


def cpp_flags(tools: Tools) -> list[str]:
    return [
        *("-O2", "-std=c++17", "-DNDEBUG", "-Wall", "-Wextra"),
        *("-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        *("-I", "include", "-I", "src"),
        *("-isystem", str(tools.toolkit.include)),
    ]


def op_flags(tools: Tools) -> list[str]:
    """What the C++ files of src get beside: torch, by the stable ABI only. Kernels see none."""
    return [
        *("-DUSE_CUDA", f"-DTORCH_TARGET_VERSION={TARGET_VERSION}"),
        *("-I", str(GENERATED)),
        *("-isystem", str(tools.torch.include)),
    ]


def switch_flags(tools: Tools) -> list[str]:
    """What the C++ files of src/switch get beside: all of torch, as only this version has it."""
    version = tools.torch.version.partition("+")[0]
    return [
        f'-DCUTLASS_FUSED_TORCH_VERSION="{version}"',
        *("-isystem", str(tools.torch.include)),
    ]


def file_defines(tools: Tools) -> dict[Path, list[str]]:
    """Macros for single files, so that a changed value recompiles no other."""
    major, minor = tools.toolkit.version
    values = {
        "CUTLASS_FUSED_ARCHS": ";".join(map(str, tools.archs)),
        "CUTLASS_FUSED_PTX": shipped_ptx(tools.archs),
        "CUTLASS_FUSED_CUDA_VERSION": f"{major}.{minor}",
        "CUTLASS_FUSED_CUTLASS_VERSION": tools.cutlass.version,
    }
    defines = [f'-D{name}="{value}"' for name, value in values.items()]
    return {Path("src/ops/build_info.cpp"): defines}


def link_flags(tools: Tools) -> list[str]:
    """Only what is really used becomes a dependency, and a symbol that no library defines, as one
    of Python's, ends the link."""
    is_old = is_for_other_machines()
    return [
        *("-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL"),
        # Before torch, which exports pieces of the C++ library too.
        *(old_libraries.link_flags(tools.host_compiler) if is_old else ["-lstdc++"]),
        *("-L", str(tools.torch.lib)),
    ]


def libraries(tools: Tools) -> dict[Path, list[str]]:
    """What each of the built libraries is linked with. The stable ABI is in torch_cpu and
    torch_cuda."""
    return {
        LIBRARY: [
            *("-ltorch_cpu", "-ltorch_cuda"),
            str(tools.toolkit.cudart),
            *("-ldl", "-lrt", "-lpthread"),
        ],
        SWITCH: ["-ltorch_cpu", "-lc10"],
    }
