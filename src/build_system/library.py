"""The whole build: find the tools, write the sources and build.ninja, run ninja."""

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import fail
from .architectures import choose_architectures
from .cuda_toolkit import find_cuda_toolkit
from .cutlass_headers import find_cutlass
from .flags import Tools
from .generated_sources import write_if_changed, write_schemas
from .host_compiler import check_host_compiler, name_host_compiler
from .jobs import choose_jobs
from .ninja_file import format_ninja, list_edges
from .paths import (
    BUILD,
    BUILD_SECONDS,
    COMMON_KERNELS,
    LIBRARY,
    NINJA_VERSION,
    OPEN_KERNELS,
    ROOT,
    SWITCH,
)
from .torch_library import find_torch, read_cuda
from .wheel import is_for_other_machines, old_libraries
from .wheel.isolation import fetch_missing, is_isolated, keep_torch, make_environment
from .wheel.op_namespace import write_file


def find_tools() -> Tools:
    toolkit = find_cuda_toolkit()
    compiler = name_host_compiler()
    check_host_compiler(toolkit, compiler)
    archs = choose_architectures(toolkit.list_real_architectures())
    return Tools(toolkit, find_cutlass(), keep_torch(find_torch()), compiler, archs)


def compare_cuda(nvcc: tuple[int, int], torch: tuple[int, int] | None) -> str:
    """What to know where the library asks for a newer driver than torch does."""
    if torch is None or nvcc[0] <= torch[0]:
        return ""
    return (
        f"cutlass_fused: nvcc is of CUDA {nvcc[0]} and torch of CUDA {torch[0]}.{torch[1]}: the "
        f"library needs a newer driver than torch, one for CUDA {nvcc[0]}\n"
    )


def configure(tools: Tools) -> Path:
    """Writes the generated sources and build.ninja, whose path it returns."""
    write_schemas()
    if is_for_other_machines():
        old_libraries.write_libraries(tools.host_compiler)
    file = BUILD / "build.ninja"
    write_file(ROOT / BUILD)
    write_if_changed(ROOT / file, format_ninja(tools, list_edges(tools)))
    return file


def ninja_command() -> list[str]:
    if importlib.util.find_spec("ninja") is not None:
        return [sys.executable, "-m", "ninja"]
    on_path = shutil.which("ninja")
    if on_path is None:
        fail("ninja is not installed", "run `pip install ninja`")
    return [on_path]


def read_ninja_version(ninja: list[str]) -> str:
    done = subprocess.run([*ninja, "--version"], capture_output=True, text=True)
    return done.stdout.strip()


def makes(ninja: list[str], *targets: Path) -> bool:
    """In ROOT: the paths in build.ninja are relative, so that a moved checkout stays built."""
    command = [*ninja, *map(str, targets)]
    return subprocess.run(command, cwd=ROOT, env=make_environment()).returncode == 0


def build() -> list[Path]:
    """Brings the libraries, and the kernels beside them, up to date and returns their paths.

    That of the switch is left out where it does not compile: it is written against an API that a
    newer torch may have changed, and kernels in Python stand in for it. So are the common kernels
    where there is no NVRTC to link them.
    """
    jobs = choose_jobs()
    ninja = ninja_command()
    if is_isolated():
        fetch_missing()
    tools = find_tools()
    file = configure(tools)
    print(
        compare_cuda(tools.toolkit.version, read_cuda())
        + f"cutlass_fused: nvcc {'.'.join(map(str, tools.toolkit.version))}, "
        f"CUTLASS {tools.cutlass.version}, torch {tools.torch.version}, "
        f"architectures {';'.join(map(str, tools.archs))}, {jobs} jobs",
        flush=True,
    )
    (ROOT / NINJA_VERSION).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / NINJA_VERSION).write_text(read_ninja_version(ninja))
    is_first = not any((ROOT / BUILD).glob("objects/*.o"))  # later ones compile what has changed
    start = time.monotonic()
    command = [*ninja, "-f", str(file), "-j", str(jobs)]
    if not makes(command, OPEN_KERNELS, LIBRARY):
        fail("the library did not compile", "the first error above names the file")
    built = [LIBRARY, OPEN_KERNELS]
    for path in (SWITCH, COMMON_KERNELS):
        if makes(command, path):
            built.append(path)
        else:
            print(f"cutlass_fused: {path.name} was not made and is left out", flush=True)
    if is_first:
        (ROOT / BUILD_SECONDS).write_text(f"{time.monotonic() - start:.0f}\n")
    return [ROOT / path for path in built]
