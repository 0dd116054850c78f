"""batch_norm_gradient and batch_norm_scale_gradient."""

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

_NAMES = ", ".join(str(dtype).removeprefix("torch.") for dtype in REFERENCE_DTYPES)


def check_any_vector(
    op: str, name: str, vector: Tensor | None, x: Tensor, may_be_one: bool = False
) -> None:
    """(N,) beside x (M, N), or also one element, of any dtype of x, or absent."""
    if vector is None:
        return
    if vector.dtype not in REFERENCE_DTYPES:
        found = str(vector.dtype).removeprefix("torch.")
        raise RuntimeError(f"{op}: {name} must be one of {_NAMES}, got {found}")
    is_one = may_be_one and vector.dim() < 2 and vector.numel() == 1
    vector = vector.expand(x.shape[1]) if is_one else vector
    check_wide_vector(op, name, vector, x, vector.dtype)


def _check(op: str, x: Tensor, z: Tensor, mean: Tensor, rstd: Tensor) -> None:
    check_dense(op, x)
    check_batch(op, x, "(M, N)")
    check_x_dtype(op, x, REFERENCE_DTYPES)
    check_like_x(op, "z", z, x, x.dtype)
    for name, vector in (("mean", mean), ("rstd", rstd)):
        check_wide_vector(op, name, vector, x, compute_dtype(x))


def differentiate_columns(
    x: Tensor,
    z: Tensor,
    mean: Tensor,
    rstd: Tensor,
    sum_n: Tensor,
    sum_1: Tensor,
    factors: tuple[Tensor | None, ...],
) -> Tensor:
    """The gradient of z, of the sums of x * n and of x over the rows, in the dtype of rstd, and
    multiplied by factors of the columns."""
    factor = rstd
    for each in factors:
        factor = factor if each is None else factor * each.to(rstd.dtype)
    n = (z.to(rstd.dtype) - mean) * rstd
    return factor * (x.to(rstd.dtype) - (sum_1 + n * sum_n) / max(x.shape[0], 1))


def _add_up(x: Tensor, z: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    wide, n = x.to(rstd.dtype), (z.to(rstd.dtype) - mean) * rstd
    return (wide * n).sum(0), wide.sum(0)


def batch_norm_gradient(
    x: Tensor,
    z: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor | None = None,
    scale: Tensor | None = None,
    round_vectors: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a batch norm in training, of x, the gradient of y, and z, both (M, N) and of
    one dtype, and of vectors (N,), mean and rstd in float32 (float64 for float64), gamma in any
    dtype. With n = (z - mean) * rstd,

        grad_beta = sum(x), grad_gamma = sum(x * n) over the rows, and
        grad_z = scale * gamma * rstd * (x - (grad_beta + n * grad_gamma) / M)

    in the dtype of x, the others in that of rstd or, with round_vectors, rounded to that of x;
    gamma and scale of None are 1. scale, one element or (N,) in any dtype, is that of z = u *
    scale, in front of the batch norm: then grad_z is the gradient of u.
    """
    op = "batch_norm_gradient"
    _check(op, x, z, mean, rstd)
    check_any_vector(op, "gamma", gamma, x)
    check_any_vector(op, "scale", scale, x, may_be_one=True)
    sum_n, sum_1 = _add_up(x, z, mean, rstd)
    grad_z = differentiate_columns(x, z, mean, rstd, sum_n, sum_1, (gamma, scale))
    if round_vectors:
        sum_n, sum_1 = (round_to(sums, x.dtype) for sums in (sum_n, sum_1))
    return round_to(grad_z, x.dtype), sum_n, sum_1


def batch_norm_scale_gradient(
    x: Tensor,
    z: Tensor,
    mean: Tensor,
    rstd: Tensor,
    scale: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of a batch norm in training with a scale behind it, y = (n * gamma + beta) *
    scale, of operands as those of batch_norm_gradient: of z, gamma, beta, and for each column that
    of scale,

        grad_beta = scale * sum(x), grad_gamma = scale * sum(x * n) over the rows,
        grad_scale = gamma * sum(x * n) + beta * sum(x), and
        grad_z = scale * gamma * rstd * (x - (sum(x) + n * sum(x * n)) / M)

    in the dtype of x, the others (N,) in that of rstd; gamma of None is 1, beta of None is 0.
    """
    op = "batch_norm_scale_gradient"
    _check(op, x, z, mean, rstd)
    check_any_vector(op, "gamma", gamma, x)
    check_any_vector(op, "beta", beta, x)
    check_any_vector(op, "scale", scale, x, may_be_one=True)
    sum_n, sum_1 = _add_up(x, z, mean, rstd)
    grad_z = differentiate_columns(x, z, mean, rstd, sum_n, sum_1, (gamma, scale))
    wide = scale.to(rstd.dtype)
    grad_scale = sum_n.clone() if gamma is None else sum_n * gamma.to(rstd.dtype)
    grad_scale = grad_scale if beta is None else grad_scale + sum_1 * beta.to(rstd.dtype)
    return round_to(grad_z, x.dtype), sum_n * wide, sum_1 * wide, grad_scale
