"""softmax. The arguments, the numerics and the errors stand at the head of this package."""

import torch
from torch import Tensor

from ..checks import REFERENCE_DTYPES, check_out_dtype, check_rank, check_x_dtype, find_out_dtype
from ._arithmetic import round_to


def softmax(x: Tensor, out_dtype: torch.dtype | None = None, out: str | None = None) -> Tensor:
    """y = exp(x - max) / sum(exp(x - max)) over the last dimension of x: (..., N).

    The elements of a row add up to 1 within one eps of out_dtype. A row with NaN or +inf, and one
    of -inf alone, becomes NaN, as in PyTorch.

    Returns the shape of x, contiguous, of out_dtype.
    """
    op = "softmax"
    check_rank(op, x)
    check_x_dtype(op, x, REFERENCE_DTYPES)
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_out_dtype(op, x, out_dtype)

    return round_to(softmax_rows(x), out_dtype or x.dtype)


def softmax_rows(v: Tensor) -> Tensor:
    """Over the last dimension, in float64.

    With sums in fp32 the elements of a wide row would add up to 1 only within many eps.
    """
    return torch.softmax(v, dim=-1, dtype=torch.float64)
