"""Products of batches: as one product where they are one, else by the op for batches.

Which of them go where is decided here alone.
"""

from torch import Tensor

from .._library import ops
from . import _left
from ._by_pytorch import is_by_pytorch
from ._epilogue import add_product, are_numbers, fits

_linear = ops.linear.default
_bmm = ops.bmm.default
_baddbmm = ops.baddbmm.default


def serve_bmm(word: str, a: Tensor, b: Tensor) -> Tensor | str:
    """a (B, M, K) @ b (B, K, N)."""
    reason = _find_reason(word, a, b)
    if reason is not None:
        return reason
    is_broadcast = a.shape[0] > 1 and b.stride(0) == 0
    if not is_broadcast and is_by_pytorch(word, a, b):
        return _left.CUBLAS
    if a.shape[0] == 1:
        # As matrices: a view of three dimensions that lies along M would be copied.
        return _linear(a[0], b[0].t(), None, word).unsqueeze(0)
    if is_broadcast:
        # The same b for all: one product of B * M rows.
        return _linear(a, b[0].t(), None, word)
    return _bmm(a, b.transpose(1, 2), word)


def serve_baddbmm(word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor | str:
    """beta * c + alpha * (a (B, M, K) @ b (B, K, N)); c broadcasts to (B, M, N). Where beta is 0, c
    is not read."""
    if alpha == 0:
        return _left.ALPHA
    if not are_numbers(beta, alpha):
        return _left.SCALES
    if not _left.is_like(c, a):
        return _left.ODD
    reason = _find_reason(word, a, b)
    if reason is not None:
        return reason
    batches, m, n = a.shape[0], a.shape[1], b.shape[2]
    if not fits(c, (batches, m, n)):
        return _left.ODD
    if alpha == 1 and beta == 0:
        return serve_bmm(word, a, b)
    if batches == 1:
        of_matrix = c[0] if c.dim() == 3 else c
        return add_product(word, of_matrix, a[0], b[0], beta, alpha).unsqueeze(0)
    if b.stride(0) == 0 and (rows := _join_rows(c, batches, m, n)) is not None:
        y = add_product(word, rows, a.reshape(batches * m, a.shape[2]), b[0], beta, alpha)
        return y.view(batches, m, n)
    return _baddbmm(c, a, b.transpose(1, 2), float(beta), float(alpha), word)


def _find_reason(word: str, a: Tensor, b: Tensor) -> str | None:
    """Why a @ b is left to PyTorch; None if it is served."""
    if a.dim() != 3 or b.dim() != 3 or not _left.is_like(a, b):
        return _left.ODD
    batches, m, k = a.shape
    if b.shape[0] != batches or b.shape[1] != k:
        return _left.ODD
    return _left.find_reason_of_sizes(word, m, b.shape[2], k) if batches else _left.EMPTY


def _join_rows(c: Tensor, batches: int, m: int, n: int) -> Tensor | None:
    """c as rows of all matrices, (B * M, N) or what broadcasts to it; None: they lie otherwise."""
    if c.dim() < 2 or all(size == 1 for size in c.shape[:-1]):
        return c.reshape(c.shape[-1:])
    whole = c.expand(batches, m, n)
    if whole.stride(0) != m * whole.stride(1):
        return None
    return whole.reshape(batches * m, n)
