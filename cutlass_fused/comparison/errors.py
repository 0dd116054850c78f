"""The truth in float64, and the error against it."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor


class Truth(NamedTuple):
    y: Tensor
    buffers: dict[str, Tensor]  # of the model behind the call: running statistics


def compute_truth(plain: torch.nn.Module, x: Tensor) -> Truth:
    """One call of a copy of the model in float64, on the numbers that the given precision holds."""
    model = copy.deepcopy(plain).double()
    with torch.no_grad():
        y = model(x.double())
    return Truth(y, dict(model.named_buffers()))


def compute_error(y: Tensor, truth: Tensor) -> float:
    """The relative L2 error."""
    return ((y.double() - truth).norm() / truth.norm()).item()
