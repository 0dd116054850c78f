"""linear_out."""

from torch import Tensor

from ..checks import check_matrices, check_y
from ._epilogues import linear


def linear_out(
    y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, precision: str = "ieee"
) -> None:
    """y = x @ weight.T + bias, written to y: contiguous, of the shape that `linear` returns, of the
    dtype of x or float32. It must not overlap what is read, which is not checked.
    """
    check_matrices("linear_out", x, weight)
    check_y("linear_out", y, x, weight)
    y.copy_(linear(x, weight, bias, precision, y.dtype))
