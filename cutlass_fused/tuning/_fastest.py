"""Times the candidates for one product against each other."""

from typing import NamedTuple

import torch

from .._namespace import ops
from ..timing import Timing, time_in_turns

# All candidates a few times, which tells those apart that differ by a tenth; then the best of them
# against the heuristic's choice.
SCREENING_ROUNDS = 5
FINALISTS = 4
FINAL_ROUNDS = 30
# A tile must be faster by a hundredth, or by what one tile differs from itself.
LEAST_GAIN = 0.01
_AGAIN = " again"


class Product(NamedTuple):
    """A product that an op has met: what record_products tells of it."""

    device: int
    key: str
    m: int
    n: int
    k: int
    dtype: str
    precision: str
    out_dtype: str
    choice: str  # the heuristic's tile, one of ...
    tiles: list[str]  # ... those that can serve


def find_fastest(product: Product) -> str:
    """The fastest tile; the heuristic's unless another is faster by more than the noise.

    Until this returns, calls of the same product use the candidates in turn. Afterwards they use
    the heuristic's again.
    """
    with torch.cuda.device(product.device), torch.no_grad():
        run = _make_run(product)
        try:
            variants = _make_variants(product, run)
            times = time_in_turns(variants, "cuda", SCREENING_ROUNDS)
            best = sorted(times, key=lambda tile: times[tile].median)[:FINALISTS]
            final = {tile: variants[tile] for tile in (product.choice, *best)}
            final[product.choice + _AGAIN] = variants[product.choice]
            return pick(time_in_turns(final, "cuda", FINAL_ROUNDS), product.choice)
        finally:
            ops.tune_tile(product.device, product.key, "")


def pick(times: dict[str, Timing], choice: str) -> str:
    """The winner of a final, in which the heuristic's choice takes part twice."""
    times = dict(times)
    first, second = sorted([times.pop(choice).median, times.pop(choice + _AGAIN).median])
    noise = max(LEAST_GAIN, second / first - 1)
    best = min(times, key=lambda tile: times[tile].median, default=choice)
    return best if best != choice and times[best].median * (1 + noise) < first else choice


def _make_run(product: Product):
    """The product alone: its key does not tell what follows.

    An fp32 one twice, with the parts of its weight made before and in the call: which of both a
    program will do is not known, and kernels that split nothing are among the candidates.
    """
    device = torch.device("cuda", product.device)
    generator = torch.Generator(device).manual_seed(0)
    dtype, out_dtype = (getattr(torch, name) for name in (product.dtype, product.out_dtype))
    x, weight = (
        torch.randn(rows, product.k, dtype=dtype, device=device, generator=generator)
        for rows in (product.m, product.n)
    )
    arguments = (x, weight, None, product.precision, out_dtype)
    if dtype != torch.float32:
        return lambda: ops.linear(*arguments)
    split = ops.split_weight(weight, product.precision)

    def run_twice():
        ops.linear(*arguments, split)
        return ops.linear(*arguments)

    return run_twice


def _make_variants(product: Product, run):
    def make(tile):
        def run_with_tile():
            ops.tune_tile(product.device, product.key, tile)
            return run()

        return run_with_tile

    return {tile: make(tile) for tile in (product.choice, *product.tiles)}
