"""What each op gives instead of PyTorch's kernel: a tensor, or the reason why PyTorch computes it.

A function here takes the word of the switch and what the op is called with. It is called with a
first tensor of float32.
"""

import torch
from torch import Tensor

from .._library import ops
from . import _left
from ._batches import serve_baddbmm, serve_bmm
from ._by_pytorch import is_by_pytorch
from ._epilogue import add_product, are_numbers, fits, is_linear
from ._out import write_behind, write_in_place

_linear = ops.linear.default


def serve_mm(word: str, a: Tensor, b: Tensor) -> Tensor | str:
    """a (M, K) @ b (K, N)."""
    reason = _left.find_reason(word, a, b)
    if reason is None and is_by_pytorch(word, a, b):
        reason = _left.CUBLAS
    return _linear(a, b.t(), None, word) if reason is None else reason


def serve_addmm(word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor | str:
    """beta * c + alpha * (a (M, K) @ b (K, N)); c of any shape that broadcasts to (M, N).

    One call of an op. Where beta is 0, c is not read.
    """
    reason = _left.find_reason(word, a, b)
    if reason is not None:
        return reason
    shape = (a.shape[0], b.shape[1])
    if not are_numbers(beta, alpha):
        return _left.SCALES
    if not _left.is_like(c, a) or not fits(c, shape):
        return _left.ODD
    if alpha == 0:
        return _left.ALPHA
    if is_linear(c, b.shape[1], beta, alpha) and is_by_pytorch(word, a, b):
        return _left.CUBLAS
    return add_product(word, c, a, b, beta, alpha)


def serve_addmm_activation(
    word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1, use_gelu=False
) -> Tensor | str:
    """relu or gelu of addmm. PyTorch's gelu is that of "tanh" here on a GPU, not on a CPU."""
    return activate(serve_addmm(word, c, a, b, beta=beta, alpha=alpha), use_gelu)


def activate(z: Tensor | str, use_gelu: bool) -> Tensor | str:
    """What is served, in its place."""
    if z.__class__ is str:
        return z
    if use_gelu:
        return torch.ops.aten.gelu_(z, approximate="tanh" if z.is_cuda else "none")
    return z.relu_()


SERVED = {
    "mm": serve_mm,
    "mm.out": write_behind(serve_mm),
    "addmm": serve_addmm,
    "addmm.out": write_behind(serve_addmm),
    "addmm_": write_in_place(serve_addmm),
    "_addmm_activation": serve_addmm_activation,
    "_addmm_activation.out": write_behind(serve_addmm_activation),
    "bmm": serve_bmm,
    "bmm.out": write_behind(serve_bmm),
    "baddbmm": serve_baddbmm,
    "baddbmm.out": write_behind(serve_baddbmm),
    "baddbmm_": write_in_place(serve_baddbmm),
}
