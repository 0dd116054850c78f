"""Compiles a C++ program of tests/host with the host compiler and runs it: no GPU, no nvcc."""

import pathlib
import subprocess

import pytest

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT


def compile_host_program(name, folder, source=None, options=()):
    """Returns run(lines) -> lines of output. Skips where the CUDA headers are missing. `source` is
    another file than tests/host/<name>.cpp."""
    try:
        include = find_cuda_toolkit().include
    except SystemExit as missing:
        pytest.skip(str(missing))
    program = folder / pathlib.PurePath(name).name
    command = [name_host_compiler(), "-std=c++17", "-O1", "-Wall", "-Werror", "-pthread", *options]
    command += ["-I", ROOT / "include", "-isystem", include]
    command += ["-I", ROOT / "tests/host", source or ROOT / "tests/host" / f"{name}.cpp"]
    command += ["-o", program]
    subprocess.run(list(map(str, command)), check=True)

    def run(lines):
        text = "".join(f"{line}\n" for line in lines)
        result = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        return result.stdout.splitlines()

    return run
