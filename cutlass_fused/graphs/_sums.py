"""Sums of a product and a tensor, in a graph: the product alone, and the sum for Inductor.

Inductor computes the sum together with what follows it, and the parts of the product's weight may
be kept. Outside of graphs one op does both.
"""

from torch import Tensor

from .._library import ops
from ..matmul import _left
from ..matmul._batches import serve_bmm
from ..matmul._epilogue import are_numbers, find_row, fits
from ..matmul._served import SERVED, activate

_linear = ops.linear.default
_linear_scale = ops.linear_scale_leaky_relu.default


def add_scaled(z: Tensor, c: Tensor, beta) -> Tensor:
    """z + beta * c, in z. NaN in c are nothing where beta is 0, as in PyTorch. beta may be a bool,
    which addmm takes, and add does not."""
    return z if beta == 0 else z.add_(c, alpha=float(beta))


def serve_addmm(word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor | str:
    """As that of _served; a c that is the same in all rows is the bias of the product."""
    reason = _left.find_reason(word, a, b)
    if reason is not None:
        return reason
    m, n = a.shape[0], b.shape[1]
    if not are_numbers(beta, alpha):
        return _left.SCALES
    if not _left.is_like(c, a) or not fits(c, (m, n)):
        return _left.ODD
    if alpha == 0:
        return _left.ALPHA
    if alpha != 1:
        z = _linear_scale(a, b.t(), None, None, float(alpha), 1.0, word)
    elif beta != 0 and (row := find_row(c, n)) is not None:
        return _linear(a, b.t(), row if beta == 1 else row * beta, word)
    else:
        z = _linear(a, b.t(), None, word)
    return add_scaled(z, c, beta)


def serve_addmm_activation(
    word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1, use_gelu=False
) -> Tensor | str:
    return activate(serve_addmm(word, c, a, b, beta=beta, alpha=alpha), use_gelu)


def serve_baddbmm(word: str, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor | str:
    if alpha == 0:
        return _left.ALPHA
    if not are_numbers(beta, alpha):
        return _left.SCALES
    if not _left.is_like(c, a):
        return _left.ODD
    z = serve_bmm(word, a, b)
    if z.__class__ is str:
        return z
    if not fits(c, z.shape):
        return _left.ODD
    return add_scaled(z if alpha == 1 else z.mul_(alpha), c, beta)


SERVED_IN_GRAPHS = SERVED | {
    "addmm": serve_addmm,
    "_addmm_activation": serve_addmm_activation,
    "baddbmm": serve_baddbmm,
}
