"""The problems of a checkout, read from its files: nothing of them lies here."""

import importlib.util
import pathlib
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

FOLDER = "KernelBench/level2"
# File names list what a problem computes. Each of these begins with a linear layer or a matmul.
PRODUCTS = {"gemm", "matmul", "bmm"}
# Of parameters and inputs. Each call of a model starts from one of its own, for dropout.
SEED = 42


class Problem(NamedTuple):
    """number: by which people name it."""

    number: int
    path: pathlib.Path

    @property
    def name(self) -> str:
        return self.path.stem


class Loaded(NamedTuple):
    """model: plain, and in training, as the benchmark calls it."""

    module: ModuleType
    model: nn.Module
    device: str
    dtype: torch.dtype

    def draw(self, seed: int) -> list[Tensor]:
        """The inputs of one trial."""
        torch.manual_seed(seed)
        with torch.device(self.device):
            return [_convert(each, self.device, self.dtype) for each in self.module.get_inputs()]


def list_problems(checkout: pathlib.Path) -> list[Problem]:
    """Those with a product, by number. Raises SystemExit where there are none."""
    found = []
    for path in (checkout / FOLDER).glob("*.py"):
        number, *words = path.stem.split("_")
        if number.isdecimal() and not PRODUCTS.isdisjoint(word.lower() for word in words):
            found.append(Problem(int(number), path))
    if not found:
        raise SystemExit(f"there must be problems in {checkout / FOLDER}, got none")
    return sorted(found)


def load(problem: Problem, device: str, dtype: torch.dtype) -> Loaded:
    """The model is made on the device: matrices of 4 GiB take a CPU long to draw."""
    spec = importlib.util.spec_from_file_location(f"problem_{problem.number}", problem.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(SEED)
    with torch.device(device):
        model = module.Model(*module.get_init_inputs())
    return Loaded(module, model.to(device, dtype), device, dtype)


def _convert(value, device: str, dtype: torch.dtype):
    if not isinstance(value, Tensor):
        return value
    return value.to(device, dtype if value.is_floating_point() else None)
