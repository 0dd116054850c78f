"""The MLP block of a vision transformer: Dosovitskiy et al., "An Image is Worth 16x16 Words:
Transformers for Image Recognition at Scale", 2021. The channel mixing of Tolstikhin et al.,
"MLP-Mixer", 2021, is the same block."""

import torch
from torch.nn import GELU, LayerNorm, Linear

from .parts import Residual, list_dropout


def build_vit_mlp(k: int = 768, n: int = 768, dropout: float = 0.1) -> torch.nn.Sequential:
    """768-3072-768 on tokens: ViT-B/16, with its dropout on ImageNet. k and n are equal."""
    parts = [LayerNorm(k), Linear(k, 4 * k), GELU(), *list_dropout(dropout)]
    return torch.nn.Sequential(Residual(*parts, Linear(4 * k, n), *list_dropout(dropout)))
