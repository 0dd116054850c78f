"""linear and linear_scale_leaky_relu.

The arguments, the numerics and the errors stand at the head of this package.
"""

import torch
from torch import Tensor

from ..checks import check_matrices, check_options, check_scale, check_vector, find_out_dtype
from ._arithmetic import product, round_to


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
    out: str | None = None,
) -> Tensor:
    """y = z"""
    op = "linear"
    check_matrices(op, x, weight)
    n = weight.shape[0]
    check_vector(op, "bias", bias, x, n)
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_options(op, x, precision, out_dtype)

    return round_to(product(x, weight, bias), out_dtype or x.dtype)


def linear_scale_leaky_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    multiplier: float = 1.0,
    negative_slope: float = 0.01,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
    out: str | None = None,
) -> Tensor:
    """y = leaky_relu(z * scale * multiplier, negative_slope)

    The multiplier and the slope are numbers of any sign, also zero. NaN and infinities come out
    where PyTorch puts them.
    """
    op = "linear_scale_leaky_relu"
    check_matrices(op, x, weight)
    n = weight.shape[0]
    check_vector(op, "bias", bias, x, n)
    check_scale(op, scale, x, n)
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_options(op, x, precision, out_dtype)

    y = scale_leaky_relu(product(x, weight, bias), scale, multiplier, negative_slope)
    return round_to(y, out_dtype or x.dtype)


def scale_leaky_relu(
    z: Tensor, scale: Tensor | None, multiplier: float, negative_slope: float
) -> Tensor:
    """v = z * scale * multiplier; y = v where v > 0, else v * negative_slope; all in z's dtype."""
    v = z if scale is None else z * scale
    v = v * multiplier
    return torch.where(v > 0, v, v * negative_slope)
