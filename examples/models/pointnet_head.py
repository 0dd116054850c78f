"""The head of PointNet: Qi et al., "PointNet: Deep Learning on Point Sets for 3D Classification and
Segmentation", 2017."""

import torch
from torch.nn import BatchNorm1d, Linear, ReLU

from .parts import list_dropout


def build_pointnet_head(k: int = 1024, n: int = 40, dropout: float = 0.3) -> torch.nn.Sequential:
    """1024 features of a cloud to 512, 256 and scores of the 40 classes of ModelNet40. It keeps 0.7
    of what goes into the last layer."""
    parts = [Linear(k, 512), BatchNorm1d(512), ReLU(), Linear(512, 256), BatchNorm1d(256), ReLU()]
    return torch.nn.Sequential(*parts, *list_dropout(dropout), Linear(256, n))
