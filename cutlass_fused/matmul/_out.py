"""The forms of an op that write to a tensor of the caller's.

Here the result is computed in memory of its own and copied, so that an `out` that overlaps an
operand is right too. The kernels in C++ have `linear_out` write to others.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from . import _by_pytorch, _left

# It resizes, with PyTorch's warning where `out` is not empty, and copies.
_copy_resized = torch.ops.aten.clone.out


def write_behind(serve: Callable) -> Callable:
    """`serve` with a keyword `out`, of any shape."""

    def serve_out(word, first, *args, out: Tensor, **options) -> Tensor | str:
        if not _left.is_like(first, out):
            return _left.ODD
        with _keep_apart(out, first, *args, **options):
            y = serve(word, first, *args, **options)
        if y.__class__ is str:
            return y
        return out.copy_(y) if out.shape == y.shape else _copy_resized(y, out=out)

    return serve_out


def _keep_apart(out: Tensor, *operands: Tensor, beta=1, **_) -> contextlib.AbstractContextManager:
    """PyTorch's product would write to what it reads, if they share memory."""
    read = operands[-2:] if beta == 0 else operands
    shares = any(torch._C._is_alias_of(out, tensor) for tensor in read)
    return _by_pytorch.never() if shares else contextlib.nullcontext()


def write_in_place(serve: Callable) -> Callable:
    """`serve`, its result in its first tensor, which must have the shape of it."""

    def serve_in_place(word, c: Tensor, *args, **options) -> Tensor | str:
        a, b = args
        if c.shape != (*a.shape[:-1], b.shape[-1]):
            return _left.ODD
        with _keep_apart(c, c, a, b, **options):
            y = serve(word, c, a, b, **options)
        return y if y.__class__ is str else c.copy_(y)

    return serve_in_place
