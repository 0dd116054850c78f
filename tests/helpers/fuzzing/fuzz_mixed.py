"""Fuzzed products of x of 16 bits with a weight of float32, by the judge of those."""

from __future__ import annotations

import random

import torch
from accuracy import Rejected
from fuzz_case import Case, Errors
from fuzz_inputs import (
    Limits,
    draw_layout,
    draw_sizes,
    lay,
    make_generator,
    name_layout,
    put_non_finite,
)
from judge_mixed import check_product

ops = torch.ops.cutlass_fused


class MixedJudge:
    def __init__(self, x, weight, bias, precision) -> None:
        self.given = x, weight, bias, precision

    def check(self, results) -> None:
        try:
            check_product(results["y"], *self.given)
        except AssertionError as error:
            raise Rejected(f"linear of two dtypes: {error}") from error

    def find_errors(self, results) -> dict[str, Errors]:
        """Relative to bounds of each output, and so no luck: a rejection is one."""
        return {"y": Errors(1.0, 0.0)}


def draw_case(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    rng = random.Random(f"mixed {seed} {index}")
    m, n, k = draw_sizes(rng, limits)
    dtype = rng.choice((torch.bfloat16, torch.float16))
    precision, out = rng.choice(("ieee", "tf32")), rng.choice((None, torch.float32))
    generator = make_generator(device, 1_000_003 * index + 7919 * draw + seed)

    def normal(*size):
        return torch.randn(size, generator=generator, device=device)

    layouts = draw_layout(rng), draw_layout(rng)
    x = normal(m, k).to(dtype)
    special = rng.random() < 0.1
    x = lay(layouts[0], put_non_finite(rng, x, 2) if special else x)
    weight = lay(layouts[1], normal(n, k) / k**0.5)
    bias = normal(n) if rng.random() < 0.5 else None

    def run():
        return {"y": ops.linear(x, weight, bias, precision, out)}

    tensors = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    names = ", ".join(map(name_layout, layouts))
    words = f"{dtype} {precision} -> {out} {m}x{n}x{k}, {names}{', non-finite' * special}"
    return Case(
        "mixed",
        words.replace("torch.", ""),
        tensors,
        run,
        lambda is_forced=False: MixedJudge(x, weight, bias, precision),
        ("split_rows",),
        form=((m, n), out or dtype),
    )
