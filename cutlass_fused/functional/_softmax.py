"""softmax along any dimension."""

import torch
from torch import Tensor

from ..checks import check_out_dtype
from ..row_ops import ROW_OPS
from ._arguments import check_x
from ._derived.row_ops import derive

_softmax_of_rows = derive(ROW_OPS["softmax"])


def softmax(x: Tensor, dim: int = -1, *, out_dtype: torch.dtype | None = None) -> Tensor:
    """y = exp(x - max) / sum(exp(x - max)) along `dim`

    Args:
        x: (..., N), float16, bfloat16 or float32 (on the CPU also float64); any strides, at least
            one dimension. A nested x of jagged layout and its result have the same offsets.
        dim: the last dimension, as -1 or by its number; along any other, PyTorch's own softmax
            runs, which then also decides on the strides of y.
        out_dtype: dtype of x or float32. None is the dtype that PyTorch gives: that of x, but
            float32 under autocast on a GPU.

    Returns:
        The shape of x, contiguous, of `out_dtype`.

    Numerics: at least fp32 inside (float64 for float64 inputs), rounded once, at the end; what the
    elements of a row add up to is 1 within one eps of `out_dtype`. Parts of a row are merged as in
    the online softmax of Milakov and Gimelshein (2018). A row with NaN or +inf, and one
    of -inf alone, becomes NaN, as in PyTorch. The gradient has the dtype of x.

    Raises:
        TypeError: x is not a tensor, or dim no integer.
        IndexError: x has no such dimension.
        RuntimeError: dtypes or layouts that do not fit; torch.jit.trace with a gradient to record;
            CUDA tensors where the library is not built or the GPU is not supported.
    """
    check_x("softmax", x)
    if dim != -1 and dim != x.dim() - 1:
        check_out_dtype("softmax", x, out_dtype)
        return torch.softmax(x, dim, dtype=out_dtype)
    return _softmax_of_rows(x, out_dtype=out_dtype)
