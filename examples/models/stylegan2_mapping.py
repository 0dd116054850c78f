"""The mapping network of StyleGAN2: Karras et al., "Analyzing and Improving the Image Quality of
StyleGAN", 2020, after "A Style-Based Generator Architecture", 2019."""

import itertools

import torch
from torch import Tensor
from torch.nn import LeakyReLU, Linear


class NormalizeLatent(torch.nn.Module):
    """z / sqrt(mean(z^2) + 1e-8) along rows."""

    def forward(self, z: Tensor) -> Tensor:
        return z * torch.rsqrt(z.square().mean(dim=1, keepdim=True) + 1e-8)


def build_layers(k: int = 512, n: int = 512) -> torch.nn.Sequential:
    """8 layers of 512, slope 0.2. What its code multiplies weights and results by is part of the
    weights here."""
    widths = (k, *[512] * 7, n)
    layers = ((Linear(*pair), LeakyReLU(0.2)) for pair in itertools.pairwise(widths))
    return torch.nn.Sequential(*itertools.chain(*layers))


def build_mapping(k: int = 512, n: int = 512) -> torch.nn.Sequential:
    """z -> w, (M, k) -> (M, n)."""
    return torch.nn.Sequential(NormalizeLatent(), *build_layers(k, n))
