"""beta * c beside a product: what one call of an op gives."""

from torch import Tensor

from .._library import ops

_linear = ops.linear.default
_addmm = ops.addmm.default


def add_product(word: str, c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * c + alpha * (a (M, K) @ b (K, N)), c of any shape that broadcasts to (M, N).

    By `linear` where nothing is scaled and c is a bias, or nothing: it has all kernels.
    """
    if alpha == 1 and beta == 0:
        return _linear(a, b.t(), None, word)
    if alpha == 1 and beta == 1 and (row := find_row(c, b.shape[1])) is not None:
        return _linear(a, b.t(), row, word)
    return _addmm(c, a, b.t(), float(beta), float(alpha), word)


def find_row(c: Tensor, n: int) -> Tensor | None:
    """The one row (N,) of which all rows of c are, or None. c may be (N,), (1, N) or (M, N)."""
    if c.dim() == 1:
        return c if c.shape[0] == n else None
    if c.dim() == 2 and c.shape[1] == n and (c.shape[0] == 1 or c.stride(0) == 0):
        return c[0]
    return None


def is_linear(c: Tensor, n: int, beta: float, alpha: float) -> bool:
    """Whether `linear` computes it: nothing is scaled, and c is a bias, or nothing."""
    return alpha == 1 and (beta == 0 or (beta == 1 and find_row(c, n) is not None))


def fits(c: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether c broadcasts to this shape."""
    missing = len(shape) - c.dim()
    return missing >= 0 and all(
        size in (1, wanted) for size, wanted in zip(c.shape, shape[missing:], strict=True)
    )


def are_numbers(beta, alpha) -> bool:
    """Whether ops take them: no complex numbers, which PyTorch refuses beside fp32."""
    return all(number.__class__ in (bool, int, float) for number in (beta, alpha))
