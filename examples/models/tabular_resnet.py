"""A ResNet for tables: Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data",
2021."""

import torch
from torch.nn import BatchNorm1d, Linear, ReLU

from .parts import Residual, list_dropout


def build_tabular_resnet(k: int = 54, n: int = 7, dropout: float = 0.15) -> torch.nn.Sequential:
    """Two blocks of 192, 384 inside: the example of the package rtdl_revisiting_models. Covertype
    has 54 features and 7 classes."""
    blocks = [
        Residual(
            *(BatchNorm1d(192), Linear(192, 384), ReLU(), *list_dropout(dropout), Linear(384, 192))
        )
        for _ in range(2)
    ]
    return torch.nn.Sequential(Linear(k, 192), *blocks, BatchNorm1d(192), ReLU(), Linear(192, n))
