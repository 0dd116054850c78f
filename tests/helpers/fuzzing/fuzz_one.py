"""One fuzzed case by its seed and its number: what it is, and what became of it."""

from __future__ import annotations

import collections
import contextlib
import random
from typing import NamedTuple

import fuzz_calls
import fuzz_gradients
import fuzz_mixed
import fuzz_programs
import fuzz_sums
import torch
from accuracy import Rejected, UnfitYardstick
from fuzz_around import Around, draw_around, run
from fuzz_case import CanaryDied, Case
from fuzz_inputs import Limits
from tiles import force_tile

# How often each kind comes. A program that is new is linked for seconds.
KINDS = {
    "call": (62, fuzz_calls.draw_case),
    "sum": (14, fuzz_sums.draw_case),
    "gradient": (12, fuzz_gradients.draw_case),
    "mixed": (5, fuzz_mixed.draw_case),
    "program": (4, fuzz_programs.draw_case),
    "program alone": (3, fuzz_programs.draw_case_alone),
}
# Verdicts that are failures.
FAILURES = ("rejected", "raised", "canary")
RIGHT = "right"
# Where few numbers are large it is luck how large eager's largest error is: such a case is drawn
# again with other numbers, and the largest errors of all of them are compared.
DRAWS = 24
LUCK = "luck of few large numbers"


class Found(NamedTuple):
    verdict: str
    words: str
    has_canaries: bool = False


def draw_case(
    seed: int, index: int, device: str, limits: Limits, kinds: tuple[str, ...] = (), draw: int = 0
) -> tuple[Case, Around]:
    """The case of this number and what surrounds it; `draw`: the same with other numbers.

    kinds: those to choose from, all of them if there is none.
    """
    rng = random.Random(f"{seed} {index}")
    chosen = kinds or tuple(KINDS)
    kind = rng.choices(chosen, [KINDS[name][0] for name in chosen])[0]
    case = KINDS[kind][1](seed, index, device, limits, draw)
    return case, draw_around(rng, case)


def judge_one(
    seed: int, index: int, device: str, limits: Limits, kinds: tuple[str, ...] = ()
) -> Found:
    """Runs and judges it. An exception of the call is a verdict, but for want of memory, which is
    raised."""
    case, around = draw_case(seed, index, device, limits, kinds)
    words = f"{case.kind}: {case.words}; {around}"
    try:
        judge = case.make_judge(bool(around.tile))
    except UnfitYardstick as error:
        return Found("eager unfit", f"{words}: {error}")
    has_canaries, results = False, None
    try:
        results, has_canaries = run(case, around)
        judge.check(results)
    except torch.OutOfMemoryError:
        raise
    except CanaryDied as error:
        return Found("canary", f"{words}: {error}")
    except Rejected as error:
        named = None
        if results is not None and "error above" in str(error):
            is_luck = find_luck(seed, index, device, limits, kinds, around.tile)
            named = LUCK if is_luck else None
        if results is not None and named is None:
            named = case.explain(judge, results, error)
        return Found(named or "rejected", f"{words}: {error}", has_canaries)
    except Exception as error:
        return Found("raised", f"{words}: {type(error).__name__}: {error}")
    return Found(RIGHT, words, has_canaries)


def find_luck(
    seed: int, index: int, device: str, limits: Limits, kinds: tuple[str, ...], tile: str = ""
) -> bool:
    """Whether over many draws of its numbers our largest errors stay within the limits of all."""
    pooled: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for draw in range(DRAWS):
        case, _ = draw_case(seed, index, device, limits, kinds, draw)
        try:
            judge = case.make_judge(bool(tile))
            with force_tile(tile) if tile else contextlib.nullcontext():
                results = case.run()
        except UnfitYardstick:
            continue
        for name, errors in judge.find_errors(results).items():
            pooled[name][0] = max(pooled[name][0], errors.ours)
            pooled[name][1] = max(pooled[name][1], errors.limit)
    return bool(pooled) and all(ours <= limit for ours, limit in pooled.values())
