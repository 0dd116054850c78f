"""batch_norm_gradient."""

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


def batch_norm_gradient(
    x: Tensor, z: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a batch norm in training, of x, the gradient of y, and z, both (M, N) and of
    one dtype, and of vectors (N,) in float32 (float64 for float64). With n = (z - mean) * rstd,

        grad_beta = sum(x), grad_gamma = sum(x * n) over the rows, and
        grad_z = gamma * rstd * (x - (grad_beta + n * grad_gamma) / M)

    in the dtype of x, the others in that of rstd; gamma of None is 1.
    """
    op = "batch_norm_gradient"
    check_dense(op, x)
    check_batch(op, x, "(M, N)")
    check_x_dtype(op, x, REFERENCE_DTYPES)
    check_like_x(op, "z", z, x, x.dtype)
    dtype = compute_dtype(x)
    for name, vector in (("mean", mean), ("rstd", rstd), ("gamma", gamma)):
        if vector is not None:
            check_wide_vector(op, name, vector, x, dtype)
    wide, n = x.to(dtype), (z.to(dtype) - mean) * rstd
    grad_gamma, grad_beta = (wide * n).sum(0), wide.sum(0)
    factor = rstd if gamma is None else gamma * rstd
    grad_z = factor * (wide - (grad_beta + n * grad_gamma) / max(x.shape[0], 1))
    return round_to(grad_z, x.dtype), grad_gamma, grad_beta
