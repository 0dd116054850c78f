"""What fuzzed cases are made of: sizes, layouts and kinds of numbers, all drawn by a generator."""

from __future__ import annotations

import dataclasses
import math
import random

import torch
from layouts import (
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    skip_columns,
    transpose,
    widen_rows,
)

LARGEST_SIZE = 20_000
LAYOUTS = (
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    skip_columns,
    transpose,
    widen_rows,
)
NON_FINITE = (math.nan, math.inf, -math.inf)


@dataclasses.dataclass(frozen=True)
class Limits:
    """How large a case may be: M * N * K, and the numbers of one matrix."""

    products: int = 2**33
    numbers: int = 2**23
    least_products: int = 0
    size: int = LARGEST_SIZE


# A CPU judges a hundred of these within half a minute.
SMALL = Limits(products=2**19, numbers=2**14, size=2_000)


def draw_size(rng: random.Random, most: int) -> int:
    """From 1 to `most`, as often in each binade, and odd more often than not."""
    size = round(math.exp(rng.uniform(0.0, math.log(most))))
    return min(size | 1, most) if rng.random() < 0.5 else size


def draw_sizes(
    rng: random.Random, limits: Limits, batch: int = 1, least_rows: int = 1
) -> tuple[int, int, int]:
    """M, N and K of one matrix of a batch; every other time rows are such as TMA reads."""
    while True:
        m, n, k = (draw_size(rng, limits.size) for _ in range(3))
        if rng.random() < 0.5:
            n, k = -(-n // 8) * 8, -(-k // 8) * 8
        if m < least_rows or not limits.least_products <= batch * m * n * k <= limits.products:
            continue
        if batch * max(m * n, m * k, n * k) <= limits.numbers:
            return m, n, k


def draw_layout(rng: random.Random):
    """A function of layouts.py; None for a matrix as it is."""
    return rng.choice((None, *LAYOUTS))


def lay(layout, matrix: torch.Tensor) -> torch.Tensor:
    return matrix if layout is None else layout(matrix)


def name_layout(layout) -> str:
    return "contiguous" if layout is None else layout.__name__


def put_non_finite(rng: random.Random, tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A copy with NaN and infinities at some places."""
    changed = tensor.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    for _ in range(count if flat.numel() else 0):
        flat[rng.randrange(flat.numel())] = rng.choice(NON_FINITE)
    return changed


def make_generator(device: str, number: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(number)
