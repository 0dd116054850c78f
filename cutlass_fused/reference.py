"""One plain PyTorch definition per op, with the argument list of its schema.

Each is the documentation of its op, its CPU kernel, its fake (shapes and dtypes while tracing) and
the truth that tests compare the GPU kernels with.

In all of them K is the length of a row of `x`, N the number of rows of `weight`, and

    z = x @ weight.T + bias

Common arguments:
    x: (..., K), float16, bfloat16 or float32 (here also float64); any strides, any number of
        leading dimensions, also none.
    weight: (N, K), dtype of x; any strides.
    bias: (N,), dtype of x or float32, any stride; None is 0.
    scale: one element of shape () or (1,), or (N,); dtype of x or float32; None is 1.
    precision: "ieee" or "tf32": what the GPU kernels give fp32 inputs. No other device and no other
        dtype knows a difference.
    out_dtype: dtype of x or float32; None is the dtype of x.
Returns (..., N), contiguous, of out_dtype.
Numerics: products and the whole tail in fp32 (float64 for float64 inputs), rounded once, at the
end. An empty sum (K = 0) is 0; M = 0 and N = 0 give an empty output.
Raises RuntimeError for tensors or options other than these.
"""

import torch
from torch import Tensor

from .checks import check_matrices, check_options, check_scale, check_vector


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """y = z. The arguments, the numerics and the errors stand at the head of this module."""
    op = "linear"
    check_matrices(op, x, weight)
    check_vector(op, "bias", bias, x, weight)
    check_options(op, x, precision, out_dtype)

    return _round(_product(x, weight, bias), out_dtype or x.dtype)


def linear_scale_leaky_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    multiplier: float = 1.0,
    negative_slope: float = 0.01,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """y = leaky_relu(z * scale * multiplier, negative_slope).

    The multiplier and the slope are numbers of any sign, also zero. NaN and infinities come out
    where PyTorch puts them. The other arguments, the numerics and the errors stand at the head of
    this module.
    """
    op = "linear_scale_leaky_relu"
    check_matrices(op, x, weight)
    check_vector(op, "bias", bias, x, weight)
    check_scale(op, scale, x, weight)
    check_options(op, x, precision, out_dtype)

    y = scale_leaky_relu(_product(x, weight, bias), scale, multiplier, negative_slope)
    return _round(y, out_dtype or x.dtype)


def linear_scale_batch_norm_inference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """y = (z * scale - running_mean) / sqrt(running_var + eps) * gamma + beta.

    running_mean, running_var, gamma, beta: (N,), dtype of x or float32, each on its own; gamma None
    is 1, beta None is 0. The other arguments, the numerics and the errors stand at the head of this
    module.
    """
    op = "linear_scale_batch_norm_inference"
    check_matrices(op, x, weight)
    check_vector(op, "bias", bias, x, weight)
    check_scale(op, scale, x, weight)
    check_vector(op, "running_mean", running_mean, x, weight)
    check_vector(op, "running_var", running_var, x, weight)
    check_vector(op, "gamma", gamma, x, weight)
    check_vector(op, "beta", beta, x, weight)
    check_options(op, x, precision, out_dtype)

    y = _product(x, weight, bias)
    if scale is not None:
        y = y * scale
    # Centred before it is scaled: one folded shift, beta - mean * gamma * rstd, would cancel where
    # the mean is much larger than the standard deviation.
    y = (y - running_mean) / torch.sqrt(running_var.to(y.dtype) + eps)
    if gamma is not None:
        y = y * gamma
    if beta is not None:
        y = y + beta
    return _round(y, out_dtype or x.dtype)


def scale_leaky_relu(
    z: Tensor, scale: Tensor | None, multiplier: float, negative_slope: float
) -> Tensor:
    """v = z * scale * multiplier; y = v where v > 0, else v * negative_slope; all in z's dtype."""
    v = z if scale is None else z * scale
    v = v * multiplier
    return torch.where(v > 0, v, v * negative_slope)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of sums and of the tail: float64 for float64 inputs, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """z in the compute dtype; vectors of 16 bits are promoted to it wherever they meet it."""
    dtype = compute_dtype(x)
    z = torch.matmul(x.to(dtype), weight.to(dtype).t())
    return z if bias is None else z + bias


def _round(y: Tensor, dtype: torch.dtype) -> Tensor:
    return y.to(dtype).contiguous()
