"""The whole build: find the tools, write the sources and build.ninja, run ninja."""

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .architectures import choose_architectures
from .cuda_toolkit import find_cuda_toolkit
from .cutlass_headers import find_cutlass
from .failure import fail
from .flags import Tools
from .generated_sources import write_if_changed, write_schemas
from .host_compiler import check_host_compiler, name_host_compiler
from .jobs import choose_jobs
from .ninja_file import format_ninja, list_edges
from .paths import BUILD, BUILD_SECONDS, LIBRARY, ROOT
from .torch_library import find_torch


def find_tools() -> Tools:
    toolkit = find_cuda_toolkit()
    compiler = name_host_compiler()
    check_host_compiler(toolkit, compiler)
    archs = choose_architectures(toolkit.list_real_architectures())
    return Tools(toolkit, find_cutlass(), find_torch(), compiler, archs)


def configure(tools: Tools) -> Path:
    """Writes the generated sources and build.ninja, whose path it returns."""
    write_schemas()
    file = BUILD / "build.ninja"
    write_if_changed(ROOT / file, format_ninja(tools, list_edges(tools)))
    return file


def ninja_command() -> list[str]:
    if importlib.util.find_spec("ninja") is not None:
        return [sys.executable, "-m", "ninja"]
    on_path = shutil.which("ninja")
    if on_path is None:
        fail("ninja is not installed", "run `pip install ninja`")
    return [on_path]


def build() -> Path:
    """Brings the library up to date and returns its path."""
    jobs = choose_jobs()
    ninja = ninja_command()
    tools = find_tools()
    file = configure(tools)
    print(
        f"cutlass_fused: nvcc {'.'.join(map(str, tools.toolkit.version))}, "
        f"CUTLASS {tools.cutlass.version}, torch {tools.torch.version}, "
        f"architectures {';'.join(map(str, tools.archs))}, {jobs} jobs",
        flush=True,
    )
    library = ROOT / LIBRARY
    is_first = not any((ROOT / BUILD).glob("objects/*.o"))  # later ones compile what has changed
    start = time.monotonic()
    # Run in ROOT: the paths in build.ninja are relative, so that a moved checkout stays built.
    result = subprocess.run([*ninja, "-f", str(file), "-j", str(jobs)], cwd=ROOT)
    if result.returncode != 0:
        fail("the library did not compile", "the first error above names the file")
    if is_first:
        (ROOT / BUILD_SECONDS).write_text(f"{time.monotonic() - start:.0f}\n")
    return library
