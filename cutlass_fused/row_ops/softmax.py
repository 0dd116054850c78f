"""softmax: over the last dimension."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._namespace import ops
from ..checks import KERNEL_DTYPES
from ._description import Gradient, Launch, RowOp

_VMAP_MODE = torch._C._dispatch_key_parse("VmapMode")


def softmax_rows(v: Tensor) -> Tensor:
    """Over the last dimension, in float64.

    With sums in fp32 the elements of a wide row would add up to 1 only within many eps.
    """
    return torch.softmax(v, dim=-1, dtype=torch.float64)


def differentiate_softmax(grad_y: Tensor, y: Tensor) -> Tensor:
    """y * (grad_y - sum(grad_y * y)), the sum over the last dimension: in one pass by the op
    softmax_gradient where nothing but a backward pass in eager mode on a GPU looks at the call,
    else by PyTorch's op, which is differentiated, mapped and compiled."""
    if _has_kernel(grad_y, y):
        # This package defines it after it has read the descriptions.
        return ops.softmax_gradient.default(grad_y, y)
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)


def _has_kernel(grad_y: Tensor, y: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and grad_y.is_cuda
        and y.is_cuda
        and type(grad_y) is Tensor
        and type(y) is Tensor
        and grad_y.dtype == y.dtype
        and y.dtype in KERNEL_DTYPES
        # Of what is recorded, or has a tangent, PyTorch asks a derivative.
        and not torch.is_grad_enabled()
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._dispatch_tls_is_dispatch_key_included(_VMAP_MODE)  # is_grads_batched
    )


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
