"""What a type checker reads of the public names."""

import importlib.util
import inspect
import os
import subprocess
import sys
import typing

import pytest
import torch

import cutlass_fused
from build_system.paths import ROOT
from cutlass_fused import functional, nn
from cutlass_fused.precision import PRECISIONS, Precision

# mypy says nothing of this program but where a line is marked as wrong.
PROGRAM = """\
from typing import assert_type
import torch
import cutlass_fused
from cutlass_fused import functional, nn

layer = nn.Linear(3, 4, precision="ieee")
assert_type(cutlass_fused.prepare(layer), nn.Linear)
y = functional.linear_scale_leaky_relu(torch.ones(2, 3), torch.ones(4, 3), precision=None)
assert_type(y, torch.Tensor)

def describe(number: int) -> str:
    return str(number)

assert_type(cutlass_fused.autotune(describe, 3), str)
assert_type(cutlass_fused.autotune()(describe)(3), str)
with cutlass_fused.autotune(), cutlass_fused.fp32_matmul("ieee"):
    pass
cutlass_fused.autotune(describe, "3")  # wrong
nn.Linear(3, 4, precision="fp32")  # wrong
functional.linear(torch.ones(2, 3), torch.ones(4, 3), precision="fp32")  # wrong
cutlass_fused.fp32_matmul("fp32")  # wrong
"""


def test_precision_is_one_of_the_words():
    assert typing.get_args(Precision) == PRECISIONS == ("ieee", "tf32")


def list_public():
    for module in (cutlass_fused, functional, nn):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"{name}.__init__", value.__init__
                if hasattr(value, "from_eager"):
                    yield f"{name}.from_eager", value.from_eager
            elif inspect.isfunction(value):
                yield name, value


PUBLIC = dict(list_public())


def test_the_public_functions_are_found():
    assert {"Linear.__init__", "Linear.from_eager", "linear", "autotune", "prepare"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_precision_of_public_functions(name):
    parameters = inspect.signature(PUBLIC[name]).parameters
    if "precision" in parameters:
        hints = typing.get_type_hints(PUBLIC[name])
        assert hints["precision"] == Precision | None


def test_autotune_and_prepare():
    """What comes out has the type of what goes in."""
    hints = typing.get_type_hints(cutlass_fused.prepare)
    assert hints["module"] == hints["return"] and hints["module"].__bound__ is torch.nn.Module
    if sys.version_info >= (3, 11):  # which keeps overloads
        bare, called = map(typing.get_type_hints, typing.get_overloads(cutlass_fused.autotune))
        assert bare["return"].__name__ == "_Autotune" and called["return"].__name__ == "Result"


def test_mypy(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line]
    lines = PROGRAM.splitlines()
    assert found == [i for i, line in enumerate(lines, 1) if line.endswith("# wrong")], done.stdout
