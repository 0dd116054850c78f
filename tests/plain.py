"""The plain models: what a user has before importing cutlass_fused."""

import torch
from torch.nn import functional as F


class PlainLinearScaleLeakyReLU(torch.nn.Module):
    """Linear -> x * multiplier -> LeakyReLU."""

    def __init__(
        self, in_features, out_features, multiplier, negative_slope, bias=True, device=None
    ):
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features, bias, device=device)
        self.multiplier = multiplier
        self.leaky_relu = torch.nn.LeakyReLU(negative_slope)

    def forward(self, x):
        return self.leaky_relu(self.gemm(x) * self.multiplier)


def run_plain(x, weight, bias=None, scale=1.0, negative_slope=0.01):
    """The expression behind functional.linear_scale_leaky_relu."""
    return F.leaky_relu(F.linear(x, weight, bias) * scale, negative_slope)
