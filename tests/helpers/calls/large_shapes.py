"""Sizes past 2^31 elements and grids past 2^16 tiles, and the rows of them that are judged."""

import torch
from cases import Shape

BEYOND = 2**31
LARGE_SHAPES = (
    Shape(65552, 32776, 8, "y beyond 2^31 elements"),
    Shape(262152, 8, 8192, "x beyond 2^31 elements"),
    Shape(2, 2**23 + 8, 8, "N beyond 65535 tiles"),
    Shape(2**23 + 8, 8, 8, "M beyond 65535 tiles"),
)


def pick_rows(m: int, n: int, k: int) -> torch.Tensor:
    """First and last rows, those beside tile borders, and those where an offset passes 2^31."""
    rows = {0, 1, 31, 32, 63, 64, 127, 128, 255, 256, m // 2, m - 129, m - 65, m - 33, m - 2, m - 1}
    for length in (n, k):
        rows |= {BEYOND // length - 1, BEYOND // length, BEYOND // length + 1}
    return torch.tensor(sorted(row for row in rows if 0 <= row < m))
