"""The plain model in float64 with its products in TF32: what the precision itself costs, whichever
kernel cuBLAS picks. Of few rows it may multiply in fp32 though TF32 is allowed."""

import functools

import torch
from torch import Tensor

# Of the 23 bits of a significand TF32 has 10.
DROPPED_BITS = 13


class _Round(torch.autograd.Function):
    """The nearest number of TF32; gradients pass through."""

    @staticmethod
    def forward(ctx, t: Tensor) -> Tensor:
        bits = t.float().view(torch.int32)
        half = (1 << DROPPED_BITS - 1) - 1 + (bits >> DROPPED_BITS & 1)  # ties go to the even one
        bits = bits + half >> DROPPED_BITS << DROPPED_BITS
        return bits.view(torch.float32).to(t.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad


class _RoundGradient(torch.autograd.Function):
    """The same number; its gradient is rounded."""

    @staticmethod
    def forward(ctx, t: Tensor) -> Tensor:
        return t.view_as(t)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return _Round.apply(grad)


def multiply_in_tf32(linear: torch.nn.Linear, x: Tensor) -> Tensor:
    """linear(x) with all operands rounded, also those of its gradients, and no sum."""
    z = _RoundGradient.apply(_Round.apply(x) @ _Round.apply(linear.weight).T)
    return z if linear.bias is None else z + linear.bias


def round_products(plain: torch.nn.Module) -> None:
    for module in plain.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = functools.partial(multiply_in_tf32, module)
