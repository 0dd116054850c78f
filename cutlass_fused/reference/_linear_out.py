"""linear_out."""

from torch import Tensor

from ..checks import check_matrices, check_options, check_vector, check_y
from ._epilogues import linear


def linear_out(
    y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, precision: str = "ieee"
) -> None:
    """y = x @ weight.T + bias, written to y: contiguous, of the shape that `linear` returns, of the
    dtype of x or float32. It must not overlap what is read, which is not checked.
    """
    check_matrices("linear_out", x, weight)
    check_y("linear_out", y, x, weight)
    check_vector("linear_out", "bias", bias, x, weight.shape[0])
    check_options("linear_out", x, precision, y.dtype)
    y.copy_(linear(x, weight, bias, precision, y.dtype))
