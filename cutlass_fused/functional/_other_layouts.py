"""Tensors whose elements lie otherwise than in strides: sparse and nested ones.

What PyTorch computes of a sparse x, and what it computes of each row of a nested one, is computed;
the rest is refused. For this a call pays with one look at a layout. Of other tensors, such as
quantized ones or a sparse weight, the ops themselves say that they do not take them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import check_out_dtype, refuse_kind
from ..precision import check_precision
from ..weights import accumulated

STRIDED = torch.strided
_SPARSE = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)


def check_sparse(op: str, x: Tensor) -> None:
    """x, which is not strided: sparse, so that a product makes it dense."""
    if x.layout not in _SPARSE:
        refuse_kind(op, "x", x)


def multiply_sparse(
    op: str, x: Tensor, weight: Tensor, bias: Tensor | None, precision: str | None, out_dtype
) -> Tensor:
    """x @ weight.T + bias, dense, by PyTorch: its products of sparse matrices know no TF32."""
    check_sparse(op, x)
    accumulated.refuse_recorded_buffer(weight)
    check_precision(precision, op)
    check_out_dtype(op, x, out_dtype)
    z = torch.nn.functional.linear(x, weight, bias)
    # Under autocast z has another dtype than x.
    return z if out_dtype is None else z.to(out_dtype)


def is_jagged(x: Tensor) -> bool:
    """Whether x is nested, of matrices whose rows lie one behind the other."""
    return x.layout is torch.jagged and x.dim() > 2 and x._ragged_idx == 1


def apply_to_rows(function: Callable, x: Tensor, *arguments, **options) -> Tensor:
    """function(rows of a jagged x, ...), nested as x is."""
    y = function(x.values(), *arguments, **options)
    return torch.nested.nested_tensor_from_jagged(y, x.offsets(), x.lengths())
