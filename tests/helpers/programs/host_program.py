"""Compiles a C++ program of tests/host with the host compiler and runs it: no GPU, no nvcc."""

import fcntl
import hashlib
import pathlib
import re
import shutil
import subprocess

import pytest

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT


def compile_host_program(name, folder, source=None, options=()):
    """Returns run(lines) -> lines of output. Skips where the CUDA headers are missing. `source` is
    another file than tests/host/<name>.cpp. `folder`: a temporary one of the tests, where the
    program lies then. What several of them ask for is compiled once."""
    try:
        include = find_cuda_toolkit().include
    except SystemExit as missing:
        pytest.skip(str(missing))
    command = [name_host_compiler(), "-std=c++17", "-O1", "-Wall", "-Werror", "-pthread", *options]
    command += ["-I", ROOT / "include", "-isystem", include]
    command += ["-I", ROOT / "tests/host", source or ROOT / "tests/host" / f"{name}.cpp"]
    command = list(map(str, command))
    program = made = folder / pathlib.PurePath(name).name
    if source is None:
        key = hashlib.sha256("\n".join(command).encode()).hexdigest()[:16]
        made = _find_common_folder(folder) / f"{program.name}-{key}"
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if source is not None or not made.exists():
            unfinished = made.with_suffix(".unfinished")
            subprocess.run([*command, "-o", str(unfinished)], check=True)
            unfinished.rename(made)
    if made != program:
        shutil.copy2(made, program)  # where others look for it

    def run(lines):
        text = "".join(f"{line}\n" for line in lines)
        result = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        return result.stdout.splitlines()

    return run


def _find_common_folder(folder):
    """That of this run of the tests, which all its processes have; else the given one."""
    found = (each for each in folder.parents if re.fullmatch(r"pytest-\d+", each.name))
    return next(found, folder)
