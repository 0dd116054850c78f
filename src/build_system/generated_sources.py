"""Writes the sources that tables stand for: .cu files of kernels, and the op schemas as C++.

A file is rewritten only when its text changed, so that nothing is recompiled without need.
"""

import json
from pathlib import Path

from kernels.open_table import OpenFile, list_host_files, list_kernel_files
from kernels.table import EpilogueKernel, ProductFile, StandaloneKernel, list_files

from .paths import GENERATED, PACKAGE, ROOT


def write_if_changed(path: Path, text: str) -> bool:
    if path.is_file() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


def write_kernels(
    folder: Path = ROOT / GENERATED,
) -> list[ProductFile | StandaloneKernel | EpilogueKernel]:
    kernels = list_files()
    for kernel in kernels:
        write_if_changed(folder / kernel.file_name, kernel.source)
    return kernels


def write_open_kernels(
    folder: Path = ROOT / GENERATED,
) -> tuple[list[OpenFile], list[OpenFile]]:
    """Those of kernels, and those of the host."""
    kernels, host = list_kernel_files(), list_host_files()
    for file in [*kernels, *host]:
        write_if_changed(folder / file.file_name, file.source)
    return kernels, host


def write_schemas(
    schemas: Path = ROOT / PACKAGE / "schemas.txt", folder: Path = ROOT / GENERATED
) -> None:
    """schemas.inc, one m.def line for each schema; src/ops/library.cpp includes it."""
    lines = (line.strip() for line in schemas.read_text().splitlines())
    definitions = [f"m.def({json.dumps(line)});\n" for line in lines if line and line[0] != "#"]
    write_if_changed(folder / "schemas.inc", "".join(definitions))
