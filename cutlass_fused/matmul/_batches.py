"""Products of batches: as one product where they are one, by the op for batches if there is one.

Which of them go where is decided here alone.
"""

import torch
from torch import Tensor

from .._library import ops
from . import _left
from ._epilogue import add_scaled, fits

_linear = ops.linear.default
# (B, M, K) @ (B, N, K).mT, in libraries that have it.
_bmm = ops.bmm.default if hasattr(ops, "bmm") else None


def serve_bmm(word: str, a: Tensor, b: Tensor) -> Tensor | str:
    """a (B, M, K) @ b (B, K, N)."""
    if a.dim() != 3 or b.dim() != 3 or not _left.is_like(a, b):
        return _left.ODD
    batches, m, k = a.shape
    if b.shape[0] != batches or b.shape[1] != k:
        return _left.ODD
    n = b.shape[2]
    if not batches:
        return _left.EMPTY
    if b.stride(0) == 0 or batches == 1:
        # The same b for all: one product of B * M rows.
        reason = _left.find_reason_of_sizes(word, batches * m, n, k)
        return _linear(a, b[0].t(), None, word) if reason is None else reason
    reason = _left.find_reason_of_sizes(word, m, n, k)
    if reason is not None:
        return reason
    if _bmm is not None:
        return _bmm(a, b.transpose(1, 2), word)
    return _left.BATCHES if _left.keeps_to(word) else _multiply_each(word, a, b)


def serve_baddbmm(word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor | str:
    """beta * c + alpha * (a (B, M, K) @ b (B, K, N)); c broadcasts to (B, M, N)."""
    if alpha == 0:
        return _left.ALPHA
    if not _left.is_like(c, a):
        return _left.ODD
    z = serve_bmm(word, a, b)
    if z.__class__ is str:
        return z
    if not fits(c, z.shape):
        return _left.ODD
    return add_scaled(z if alpha == 1 else z.mul_(alpha), c, beta)


def _multiply_each(word: str, a: Tensor, b: Tensor) -> Tensor:
    """One product after the other: slow, but PyTorch, which allows TF32, would be less exact."""
    return torch.stack([_linear(x, y.t(), None, word) for x, y in zip(a, b, strict=True)])
