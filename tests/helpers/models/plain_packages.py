"""Whether this environment loads AOTInductor packages of PyTorch alone."""

import functools
import pathlib
import subprocess
import sys
import tempfile

import pytest

PLAIN = """
import sys, torch
from torch._inductor import aoti_compile_and_package, aoti_load_package
x, model = torch.randn(4, 8, device="cuda"), torch.nn.Linear(8, 8, device="cuda")
with torch.no_grad():
    path = aoti_compile_and_package(torch.export.export(model, (x,)), package_path=sys.argv[1])
    torch.testing.assert_close(aoti_load_package(path)(x), model(x))
"""


@functools.cache
def run_plain_package() -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PLAIN, str(pathlib.Path(folder) / "plain.pt2")]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)


def require_packages_of_pytorch() -> None:
    """A process may die as it loads one of PyTorch's alone: in torch 2.11, where g++ has a newer
    C++ library than torch was built with (in std::regex, as a device's name is read)."""
    done = run_plain_package()
    if done.returncode != 0:
        pytest.skip(
            f"a package of a plain torch.nn.Linear ends its process with {done.returncode} here, "
            f"without this library: {done.stderr.strip()[-200:]}"
        )
