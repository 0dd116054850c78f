"""With which compiler this environment loads AOTInductor packages of PyTorch alone."""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
import torch

from build_system.paths import ROOT

PLAIN = """
import sys, torch
from torch._inductor import aoti_compile_and_package, aoti_load_package
x, model = torch.randn(4, 8, device="cuda"), torch.nn.Linear(8, 8, device="cuda")
with torch.no_grad():
    path = aoti_compile_and_package(torch.export.export(model, (x,)), package_path=sys.argv[1])
    torch.testing.assert_close(aoti_load_package(path)(x), model(x))
"""
OWN = str(ROOT / "examples/cpp/own_gcc")


def run_plain_package(compiler: str | None) -> subprocess.CompletedProcess:
    """`compiler`: instead of what CXX says."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PLAIN, str(pathlib.Path(folder) / "plain.pt2")]
        environment = os.environ | ({"CXX": compiler} if compiler else {})
        environment["TORCHINDUCTOR_CACHE_DIR"] = folder  # else one finds what the other compiled
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@functools.cache
def find_compiler() -> tuple[str | None, subprocess.CompletedProcess]:
    """The first of that of the environment and that of the examples whose packages load; else None
    and what became of the last."""
    for compiler in (None, OWN):
        done = run_plain_package(compiler)
        if done.returncode == 0:
            break
    return compiler, done


def require_packages_of_pytorch() -> None:
    """From here on this process compiles packages that load, or the test is skipped. A process may
    die as it loads one of PyTorch's alone: in torch 2.11, where CXX names a g++ with a newer C++
    library than torch was built with (in std::regex, as a device's name is read)."""
    compiler, done = find_compiler()
    if done.returncode != 0:
        pytest.skip(
            f"a package of a plain torch.nn.Linear ends its process with {done.returncode} here, "
            f"without this library: {done.stderr.strip()[-200:]}"
        )
    if compiler is not None:
        os.environ["CXX"] = compiler
        torch._inductor.config.cpp.cxx = (None, compiler)
