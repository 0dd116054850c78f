"""Compiles tests/host/run_package.cpp, which runs AOTInductor packages without Python."""

import shutil
import subprocess

import pytest
import torch

from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import find_torch
from cutlass_fused import _library


def compile_package_program(folder):
    """Returns run(package) -> outputs, constants. Skips where the ops are Python functions alone,
    and where there is no compiler."""
    if not _library.is_loaded():
        pytest.skip(f"a program without Python has no ops: {_library.load_error()}")
    if shutil.which(name_host_compiler()) is None:
        pytest.skip(f"there is no C++ compiler {name_host_compiler()}")
    found, program = find_torch(), folder / "run_package"
    command = [name_host_compiler(), "-std=c++17", "-O0", "-Wall", "-Werror"]
    command += ["-isystem", found.include, ROOT / "tests/host/run_package.cpp", "-o", program]
    # All of torch, though the program itself calls its CPU part alone: kernels register themselves.
    command += ["-L", found.lib, "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    # What torch's libraries need is found when the program starts, as they say themselves.
    command += [f"-Wl,-rpath,{found.lib}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(list(map(str, command)), check=True)

    def run(package):
        inputs, results = folder / "inputs.pt", folder / "results.pt"
        torch.save([x.cpu() for x in package.inputs], inputs)
        command = [program, _library.library_path(), package.device, package.path, inputs, results]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        *outputs, constants = torch.load(results, map_location=package.device)
        names = list(package.outputs[0])  # the program's outputs have none
        return [dict(zip(names, values, strict=True)) for values in outputs], dict(constants)

    return run
