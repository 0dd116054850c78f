"""Batch norm with running statistics folded into the product, by PyTorch's own function.

What is left is one addmm, and for the softmax model its tail. The weight is folded in fp32 and
rounded once; it no longer follows the parameters.
"""

import copy

import torch
from torch import Tensor
from torch.nn.utils.fusion import fuse_linear_bn_eval


def fold_into_linear(
    linear: torch.nn.Linear, bn: torch.nn.BatchNorm1d, scale: Tensor | None = None
) -> torch.nn.Linear:
    """The linear that computes bn(linear(x) * scale), with scale (N,) or absent; both in eval."""
    dtype = linear.weight.dtype
    linear, bn = (copy.deepcopy(module).float() for module in (linear, bn))
    if scale is not None:
        with torch.no_grad():
            linear.weight.mul_(scale.float().unsqueeze(1))
            linear.bias.mul_(scale.float())
    return fuse_linear_bn_eval(linear, bn).to(dtype)


def fold_scale_batch_norm(plain: torch.nn.Module) -> torch.nn.Module:
    return fold_into_linear(plain.gemm, plain.bn, plain.scale)


class LinearScaleSoftmax(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear, scale: torch.nn.Parameter) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.scale * self.linear(x), dim=1)


def fold_batch_norm_scale_softmax(plain: torch.nn.Module) -> torch.nn.Module:
    return LinearScaleSoftmax(fold_into_linear(plain.gemm, plain.bn), plain.scale)
