"""The top MLP of DLRM: Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", 2019."""

import torch
from torch.nn import ReLU, Sigmoid

from .parts import build_mlp


def build_layers(k: int = 479, n: int = 1) -> torch.nn.Sequential:
    """479-1024-1024-512-256-1: the run on Criteo's terabyte in the authors' repository."""
    return build_mlp((k, 1024, 1024, 512, 256, n), ReLU)


def build_dlrm_top(k: int = 479, n: int = 1) -> torch.nn.Sequential:
    """Interactions of features -> the probability of a click, (M, k) -> (M, n)."""
    return torch.nn.Sequential(*build_layers(k, n), Sigmoid())
