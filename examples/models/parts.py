"""What several models are made of."""

import itertools

import torch
from torch import Tensor
from torch.nn import Dropout, Linear


class Residual(torch.nn.Sequential):
    """x + the parts of x."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def build_mlp(widths: tuple[int, ...], activation: type) -> torch.nn.Sequential:
    """None behind the last layer."""
    layers = ((Linear(*pair), activation()) for pair in itertools.pairwise(widths))
    return torch.nn.Sequential(*itertools.chain(*layers))[:-1]


def list_dropout(p: float) -> list[Dropout]:
    """No module for 0: one costs a call."""
    return [Dropout(p)] if p else []
