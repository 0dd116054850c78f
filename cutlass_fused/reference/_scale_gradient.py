"""unscale_columns and scale_gradient: the gradient of a scale in front of a batch norm."""

import torch
from torch import Tensor

from ..checks import (
    REFERENCE_DTYPES,
    check_batch,
    check_dense,
    check_like_x,
    check_wide_vector,
    check_x_dtype,
)
from ._arithmetic import compute_dtype, round_to
from ._batch_norm_gradient import check_any_vector, differentiate_columns

# Of include/cutlass_fused/gradients/scale.hpp, which tells why.
SHARE_OF_SUM = 0.9


def _check(op: str, x: Tensor, names: str) -> None:
    check_dense(op, x)
    check_batch(op, x, names)
    check_x_dtype(op, x, REFERENCE_DTYPES)
    if not x.is_contiguous():
        raise RuntimeError(
            f"{op}: x must be contiguous, as it is written to, got strides {x.stride()}"
        )


def _find_share(rstd: Tensor, eps: float) -> Tensor:
    """What eps is of the variance of a column."""
    return rstd.square() * eps


def unscale_columns(
    x: Tensor,
    grad_y: Tensor,
    v: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_gamma: Tensor,
    grad_beta: Tensor,
    eps: float,
    gamma: Tensor | None = None,
) -> None:
    """Puts columns of grad_v, the gradient of what a batch norm in training is taken of, back into
    x, (M, N), which is grad_v * scale: those of which eps is most of the variance,
    eps * rstd**2 > 0.9. The others are what batch_norm_gradient has read and given: grad_y and v
    (M, N), of the dtype of x, and vectors (N,), in float32 (float64 for float64), gamma in any.
    """
    op = "unscale_columns"
    _check(op, x, "(M, N)")
    for name, matrix in (("grad_y", grad_y), ("v", v)):
        check_like_x(op, name, matrix, x, x.dtype)
    vectors = {"mean": mean, "rstd": rstd, "grad_gamma": grad_gamma, "grad_beta": grad_beta}
    for name, vector in vectors.items():
        check_wide_vector(op, name, vector, x, compute_dtype(x))
    check_any_vector(op, "gamma", gamma, x)
    grad_v = differentiate_columns(grad_y, v, mean, rstd, grad_gamma, grad_beta, (gamma,))
    x.copy_(torch.where(_find_share(rstd, eps) > SHARE_OF_SUM, round_to(grad_v, x.dtype), x))


def scale_gradient(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    rstd: Tensor,
    grad_gamma: Tensor,
    eps: float,
    gamma: Tensor | None = None,
) -> Tensor:
    """The gradient (N,) of a scale s in front of a batch norm, z = x @ W.T and v = z * s, of x
    (N, K), which the columns of unscale_columns, transposed, times the rows of the product give,
    and weight, (N, K), of its dtype; of vectors (N,), rstd and grad_gamma in float32 (float64 for
    float64), as is the result, gamma and scale, which may be one element, in any dtype. With
    share = eps * rstd**2 it is, in row n,

        sum(x[n, k] * weight[n, k]) over k,     where share[n] > 0.9, and then x[n] *= scale[n], or
        gamma[n] * grad_gamma[n] * share[n] / scale[n],     which nothing cancels in.

    x, contiguous, is then the gradient of weight; gamma of None is 1.
    """
    op = "scale_gradient"
    _check(op, x, "(N, K)")
    check_like_x(op, "weight", weight, x, x.dtype)
    dtype = compute_dtype(x)
    for name, vector in (("rstd", rstd), ("grad_gamma", grad_gamma)):
        check_wide_vector(op, name, vector, x.t(), dtype)
    check_any_vector(op, "scale", scale, x.t(), may_be_one=True)
    check_any_vector(op, "gamma", gamma, x.t())
    scale = scale.to(dtype).expand(rstd.shape)
    gamma = None if gamma is None else gamma.to(dtype)
    share = _find_share(rstd, eps)
    wide = x.to(dtype)
    total = (wide * weight.to(dtype)).sum(1)
    grad_n = grad_gamma if gamma is None else grad_gamma * gamma
    takes_the_sum = share > SHARE_OF_SUM
    scaled = round_to(wide * scale.unsqueeze(1), x.dtype)
    x.copy_(torch.where(takes_the_sum.unsqueeze(1), scaled, x))
    return torch.where(takes_the_sum, total, grad_n * share / scale)
