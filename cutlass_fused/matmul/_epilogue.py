"""beta * c behind a product."""

from torch import Tensor


def add_scaled(z: Tensor, c: Tensor, beta) -> Tensor:
    """z + beta * c, in z. NaN in c are nothing where beta is 0, as in PyTorch."""
    return z if beta == 0 else z.add_(c, alpha=beta)


def find_row(c: Tensor, n: int) -> Tensor | None:
    """The one row (N,) of which all rows of c are, or None. c may be (N,), (1, N) or (M, N)."""
    if c.dim() == 1:
        return c if c.shape[0] == n else None
    if c.dim() == 2 and c.shape[1] == n and (c.shape[0] == 1 or c.stride(0) == 0):
        return c[0]
    return None


def fits(c: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether c broadcasts to this shape."""
    missing = len(shape) - c.dim()
    return missing >= 0 and all(
        size in (1, wanted) for size, wanted in zip(c.shape, shape[missing:], strict=True)
    )
