"""addmm and baddbmm, and their forms that write to a tensor of the caller's."""

import torch
from torch import Tensor

from ..checks import check_batch, check_batches, check_matrices
from ._added import check_added, check_factors, check_floats, check_sum


def addmm(
    c: Tensor,
    x: Tensor,
    weight: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    precision: str = "ieee",
) -> Tensor:
    """y = alpha * x @ weight.T + beta * c, of x (M, K) and weight (N, K), any strides, and c of any
    shape that broadcasts to (M, N), any strides; all float32 (here also float64). Where beta is 0,
    c is not read, and where alpha is 0, neither matrix is: NaN there does not propagate. Returns
    (M, N), contiguous.
    """
    return _addmm("addmm", c, x, weight, beta, alpha, precision)


def addmm_out(
    y: Tensor,
    c: Tensor,
    x: Tensor,
    weight: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    precision: str = "ieee",
) -> None:
    """addmm, written to y: contiguous, of the shape and the dtype that addmm returns. c may be y,
    or overlap it; x and weight must not, which is not checked.
    """
    y.copy_(_addmm("addmm_out", c, x, weight, beta, alpha, precision, y))


def baddbmm(
    c: Tensor,
    x: Tensor,
    weight: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    precision: str = "ieee",
) -> Tensor:
    """y[b] = alpha * x[b] @ weight[b].T + beta * c[b], of x (B, M, K) and weight (B, N, K); else as
    addmm. Returns (B, M, N), contiguous.
    """
    return _baddbmm("baddbmm", c, x, weight, beta, alpha, precision)


def baddbmm_out(
    y: Tensor,
    c: Tensor,
    x: Tensor,
    weight: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    precision: str = "ieee",
) -> None:
    """baddbmm, written to y as addmm_out writes."""
    y.copy_(_baddbmm("baddbmm_out", c, x, weight, beta, alpha, precision, y))


def _addmm(op, c, x, weight, beta, alpha, precision, y=None) -> Tensor:
    check_floats(op, c, x, weight)
    check_batch(op, x, "(M, K)")
    check_matrices(op, x, weight)
    shape = (x.shape[0], weight.shape[0])
    check_added(op, c, shape, precision)
    if y is not None:
        check_sum(op, y, x, shape)
    check_factors(op, x, beta, alpha)
    x, weight = _without_k(x, weight, alpha)
    return torch.addmm(c, x, weight.t(), beta=beta, alpha=alpha).contiguous()


def _baddbmm(op, c, x, weight, beta, alpha, precision, y=None) -> Tensor:
    check_floats(op, c, x, weight)
    check_batches(op, x, weight, precision)
    shape = (*x.shape[:2], weight.shape[1])
    check_added(op, c, shape, precision)
    if y is not None:
        check_sum(op, y, x, shape)
    check_factors(op, x, beta, alpha)
    x, weight = _without_k(x, weight, alpha)
    return torch.baddbmm(c, x, weight.mT, beta=beta, alpha=alpha).contiguous()


def _without_k(x: Tensor, weight: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """What is multiplied: nothing where alpha is 0."""
    return (x[..., :0], weight[..., :0]) if alpha == 0 else (x, weight)
