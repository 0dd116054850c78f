"""Checks of what is added to a product, and of where the sum goes."""

import math

import torch
from torch import Tensor

from ..checks import _check_device, _check_precision, _name, _require


def check_floats(op: str, c: Tensor, x: Tensor, weight: Tensor) -> None:
    """x, weight and c: of float32, on a CPU also of float64. In front of checks that name more
    dtypes."""
    dtypes = (torch.float32, torch.float64) if x.is_cpu else (torch.float32,)
    for name, tensor in (("x", x), ("weight", weight), ("c", c)):
        is_wide = tensor.dtype in dtypes and tensor.dtype == x.dtype
        _require(
            is_wide, lambda t=tensor, n=name: f"{op}: {n} must be float32, got {_name(t.dtype)}"
        )
        _check_device(op, name, tensor, x)


def check_added(op: str, c: Tensor, shape: tuple[int, ...], precision: str) -> None:
    """c broadcasts to this shape."""
    missing = len(shape) - c.dim()
    fits = missing >= 0 and all(
        size in (1, wanted) for size, wanted in zip(c.shape, shape[missing:], strict=True)
    )
    _require(
        fits,
        lambda: (
            f"{op}: c must broadcast to the shape of the product, {shape}, "
            f"got shape {tuple(c.shape)}"
        ),
    )
    _check_precision(op, precision)


def check_factors(op: str, x: Tensor, beta: float, alpha: float) -> None:
    """As PyTorch refuses what the dtype of x has no number for."""
    largest = torch.finfo(x.dtype).max
    for name, factor in (("beta", beta), ("alpha", alpha)):
        _require(
            math.isinf(factor) or not abs(factor) > largest,
            lambda name=name, factor=factor: (
                f"{op}: {name} must be within the range of {_name(x.dtype)}, got {factor}"
            ),
        )


def check_sum(op: str, y: Tensor, x: Tensor, shape: tuple[int, ...]) -> None:
    """y: contiguous, of this shape and of the dtype of x."""
    _require(
        y.shape == shape,
        lambda: f"{op}: y must have the shape of the product, {shape}, got shape {tuple(y.shape)}",
    )
    _check_device(op, "y", y, x)
    _require(y.dtype == x.dtype, lambda: f"{op}: y must be {_name(x.dtype)}, got {_name(y.dtype)}")
    _require(y.is_contiguous(), lambda: f"{op}: y must be contiguous, got strides {y.stride()}")
