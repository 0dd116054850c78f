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


def unscale_columns(x: Tensor, grad_v: Tensor, rstd: Tensor, eps: float) -> None:
    """Puts the columns of grad_v, (M, N), back into x, grad_v * scale, where eps is more than half
    of a column's variance: eps * rstd**2 > 1/2. x is contiguous, grad_v of its dtype; rstd, (N,),
    in float32 (float64 for float64).
    """
    op = "unscale_columns"
    _check(op, x, "(M, N)")
    check_like_x(op, "grad_v", grad_v, x, x.dtype)
    check_wide_vector(op, "rstd", rstd, x, compute_dtype(x))
    x.copy_(torch.where(_find_share(rstd, eps) > 0.5, grad_v, x))


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
    and weight, (N, K), of its dtype; of vectors (N,) in float32 (float64 for float64), as is the
    result. With share = eps * rstd**2 it is, in row n,

        sum(x[n, k] * weight[n, k]) over k,     where share[n] > 1/2, and then x[n] *= scale[n], or
        gamma[n] * grad_gamma[n] * share[n] / scale[n],     which nothing cancels in.

    x, contiguous, is then the gradient of weight; gamma of None is 1.
    """
    op = "scale_gradient"
    _check(op, x, "(N, K)")
    check_like_x(op, "weight", weight, x, x.dtype)
    dtype = compute_dtype(x)
    vectors = {"scale": scale, "rstd": rstd, "grad_gamma": grad_gamma, "gamma": gamma}
    for name, vector in vectors.items():
        if vector is not None:
            check_wide_vector(op, name, vector, x.t(), dtype)
    share = _find_share(rstd, eps)
    wide = x.to(dtype)
    total = (wide * weight.to(dtype)).sum(1)
    grad_n = grad_gamma if gamma is None else grad_gamma * gamma
    takes_the_sum = share > 0.5
    scaled = round_to(wide * scale.unsqueeze(1), x.dtype)
    x.copy_(torch.where(takes_the_sum.unsqueeze(1), scaled, x))
    return torch.where(takes_the_sum, total, grad_n * share / scale)
