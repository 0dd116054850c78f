"""Packages of examples/models, and the programs that run them: that of examples/cpp, and a process
in Python without the source of the model."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

import cutlass_fused
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from examples.export_package import export_package
from examples.models import EXAMPLES

# Those of the export, and two more calls.
ROWS = (7, 2, 300)


def build_program(folder):
    """As a user builds it."""
    compiler, program = name_host_compiler(), folder / "run_package"
    for needed in (compiler, "make"):
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed}")
    command = ["make", "-s", "-C", ROOT / "examples/cpp", f"PYTHON={sys.executable}"]
    command += [f"CXX={compiler} -Werror", f"OUT={program}"]
    subprocess.run(list(map(str, command)), check=True, timeout=300)
    return program


def run_program(program, *arguments, **options):
    command = list(map(str, [program, *arguments]))
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


WITHOUT_THE_MODEL = """
import sys, torch, cutlass_fused
package, inputs, result, device = sys.argv[1:]
y = torch._inductor.aoti_load_package(package)(torch.load(inputs).to(device))
torch.save(y, result)
assert not any(name.startswith("examples") for name in sys.modules)
"""


class ExamplePackage:
    """The .pt2 file of a model, fused by Inductor, with inputs in files and their results."""

    def __init__(self, name, folder, device="cpu", precision="ieee"):
        self.model = EXAMPLES[name].build().eval().to(device)
        self.batches = [EXAMPLES[name].draw(rows).to(device) for rows in ROWS]
        self.folder, self.device = folder, device
        options = cutlass_fused.inductor_options(precision=precision)
        self.path = export_package(
            self.model, self.batches[0], str(folder / f"{name}.pt2"), **options
        )
        for x in self.batches:
            torch.save(x.cpu(), self.name_input(x))

    def name_input(self, x):
        return self.folder / f"x{len(x)}.pt"

    def check(self, y, x):
        with torch.no_grad():
            torch.testing.assert_close(y.to(self.device), self.model(x))

    def check_program(self, program, library):
        """The program of examples/cpp computes what the model does."""
        for x in self.batches:
            result = self.folder / "y.pt"
            done = run_program(program, library, self.path, self.name_input(x), result, 3)
            assert done.returncode == 0, done.stderr
            assert f" us a call of {len(x)} rows on {self.device}" in done.stdout
            (y,) = torch.load(result)
            self.check(y, x)

    def check_in_python(self):
        """So does a second process in Python, which has the library and not the model."""
        x, result = self.batches[-1], self.folder / "y_of_python.pt"
        arguments = ["-c", WITHOUT_THE_MODEL, self.path, self.name_input(x), result, self.device]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = run_program(sys.executable, *arguments, env=environment)
        assert done.returncode == 0, done.stderr
        self.check(torch.load(result), x)
