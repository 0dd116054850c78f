"""softmax: over the last dimension."""

import torch
from torch import Tensor

from ._description import Gradient, Launch, RowOp


def softmax_rows(v: Tensor) -> Tensor:
    """Over the last dimension, in float64.

    With sums in fp32 the elements of a wide row would add up to 1 only within many eps.
    """
    return torch.softmax(v, dim=-1, dtype=torch.float64)


def differentiate_softmax(grad_y: Tensor, y: Tensor) -> Tensor:
    """y * (grad_y - sum(grad_y * y)), the sum over the last dimension; PyTorch's own kernel."""
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)


def plain_softmax(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.nn.functional.softmax(x, dim=-1, dtype=dtype)


ROW_OP = RowOp(
    op="softmax",
    text="exp(x - max) / sum(exp(x - max))",
    formula=softmax_rows,
    operands=(),
    launch=Launch(
        "run_row_softmax",
        "softmax/row_softmax.hpp",
        "Vector::constant(1.0f), y, y_type",
        row="row_softmax",
        kernels=(
            "row_softmax",
            "row_softmax_short",
            "row_softmax_wide",
            "row_softmax_stream",
        ),
    ),
    gradient=Gradient(x=differentiate_softmax, reads="y", in_fp32=False),
    out_dtype=True,
    plain=plain_softmax,
    notes="""\
The elements of a row add up to 1 within one eps of out_dtype. A row with NaN or +inf, and one
of -inf alone, becomes NaN, as in PyTorch.""",
)
