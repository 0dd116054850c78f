"""softmax and its gradient."""

import torch
from torch import Tensor

from .._library import ops
from ..checks import check_out_dtype, refuse_kind
from ..sharding import apply
from ._arguments import check_x, differentiates, name_out, refuse_forward_ad, softmax_dtype
from ._differentiable_once import differentiable_once
from ._other_layouts import STRIDED, apply_to_rows, is_jagged

_softmax_op = ops.softmax.default


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
        NotImplementedError: forward-mode differentiation.
        RuntimeError: dtypes or layouts that do not fit; torch.jit.trace with a gradient to record;
            CUDA tensors where the library is not built or the GPU is not supported.
    """
    check_x("softmax", x)
    if dim != -1 and dim != x.dim() - 1:
        check_out_dtype("softmax", x, out_dtype)
        return torch.softmax(x, dim, dtype=out_dtype)
    if x.layout is not STRIDED:
        if is_jagged(x):
            return apply_to_rows(softmax, x, out_dtype=out_dtype)
        refuse_kind("softmax", "x", x)
    refuse_forward_ad("softmax")
    out_dtype = softmax_dtype(x, out_dtype)
    if differentiates(x):
        return apply("softmax", _Softmax, (x, name_out(x, out_dtype)))
    return _softmax_op(x, None, name_out(x, out_dtype))


class _Softmax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, out):
        return _softmax_op(x, None, out)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x_dtype = inputs[0].dtype
        ctx.save_for_backward(output)

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, grad_y):
        (y,) = saved
        return differentiate_softmax(grad_y, y).to(ctx.x_dtype), None


def differentiate_softmax(grad_y: Tensor, y: Tensor) -> Tensor:
    """y * (grad_y - sum(grad_y * y)), the sum over the last dimension; PyTorch's own kernel."""
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)
