"""Products of batches: as one product where they are one, else by the op for batches.

Which of them go where is decided here alone.
"""

from torch import Tensor

from .._library import ops
from . import _left
from ._epilogue import add_scaled, fits

_linear = ops.linear.default
_bmm = ops.bmm.default


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
    reason = _left.find_reason_of_sizes(word, m, n, k)
    if reason is not None:
        return reason
    if batches == 1:
        # As matrices: a view of three dimensions that lies along M would be copied.
        return _linear(a[0], b[0].t(), None, word).unsqueeze(0)
    if b.stride(0) == 0:
        # The same b for all: one product of B * M rows.
        return _linear(a, b[0].t(), None, word)
    return _bmm(a, b.transpose(1, 2), word)


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
