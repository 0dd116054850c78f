"""leaky_relu_gradient and softmax_gradient."""

import torch
from torch import Tensor

from ..checks import (
    REFERENCE_DTYPES,
    check_batch,
    check_dense,
    check_like_x,
    check_rank,
    check_x_dtype,
)
from ._arithmetic import compute_dtype, round_to


def leaky_relu_gradient(
    x: Tensor, positive: Tensor, factor: float, negative_factor: float
) -> tuple[Tensor, Tensor]:
    """grad_z = x * (positive ? factor : negative_factor), of x (M, N), the gradient of y, and a
    mask of that shape; and its column sums (N,), the gradient of a bias, in float32 (float64 for
    float64) and of numbers that are not rounded.
    """
    op = "leaky_relu_gradient"
    check_dense(op, x)
    check_batch(op, x, "(M, N)")
    check_x_dtype(op, x, REFERENCE_DTYPES)
    check_like_x(op, "positive", positive, x, torch.bool)
    wide = x.to(compute_dtype(x))
    grad_z = torch.where(positive, wide * factor, wide * negative_factor)
    return round_to(grad_z, x.dtype), grad_z.sum(0)


def softmax_gradient(x: Tensor, y: Tensor) -> Tensor:
    """grad_v = y * (x - sum(x * y)), the sum over the last dimension: of v in y = softmax(v), of x,
    the gradient of y, and y, both (..., N) and of one dtype. In that dtype, contiguous; in fp32
    inside (float64 for float64), rounded once.
    """
    op = "softmax_gradient"
    check_dense(op, x)
    check_rank(op, x)
    check_x_dtype(op, x, REFERENCE_DTYPES)
    check_like_x(op, "y", y, x, x.dtype)
    dtype = compute_dtype(x)
    wide, y = x.to(dtype), y.to(dtype)
    return round_to(y * (wide - (wide * y).sum(-1, keepdim=True)), x.dtype)
