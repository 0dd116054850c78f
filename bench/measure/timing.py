"""Measures one case: correctness once, then all variants in interleaved rounds.

The GPU's time comes from cutlass_fused.timing; the host's is measured here.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from cutlass_fused import comparison
from cutlass_fused.timing import Timing, shuffle_rounds, summarize, time_in_turns

from ..cases.cases import Case, Problem, build_problem
from ..cases.peers import prepare_variants

# Of time_waiting, for each variant in each round.
CALLS_IN_TURN = 4


def make_row(part: dict, variant: str, timing: Timing, rel_err: float, **more: float) -> dict:
    """A row of a result file; `part` is what the variants of a case share."""
    numbers = {
        "ms": timing.median,
        "ms_min": timing.least,
        "ms_max": timing.most,
        "rel_err": rel_err,
        **more,
    }
    # More digits would only make the files longer.
    rounded = {key: float(f"{value:.5g}") for key, value in numbers.items()}
    return {**part, "variant": variant, **rounded}


def measure_case(
    suite: str, case: Case, variants: Sequence[str], device: str, rounds: int
) -> list[dict]:
    """The rows of one case, all from one run."""
    return measure_problem(suite, build_problem(case, device), variants, device, rounds)


def measure_problem(
    suite: str, problem: Problem, variants: Sequence[str], device: str, rounds: int, **how
) -> list[dict]:
    """The rows of its case; `how` goes to prepare_variants."""
    # Otherwise the cases before this one count towards the limit on recompilations, at which
    # torch.compile silently becomes eager.
    torch.compiler.reset()
    with torch.no_grad(), comparison.set_matmul_precision(problem.setting):
        runs, errors = prepare_variants(problem, variants, **how)
        timings = time_in_turns(runs, device, rounds)
    part = problem.case.describe(suite)
    return [make_row(part, name, timings[name], errors[name]) for name in runs]


def time_host(
    variants: Mapping[str, Callable[[], object]],
    device: str,
    rounds: int = 200,
    calls: int = 100,
) -> dict[str, Timing]:
    """Milliseconds of host time that one call of each variant takes, over interleaved rounds.

    A round makes `calls` calls without waiting for the GPU, whose launch queue holds a thousand
    kernels: few enough that it is never full, so that no call blocks.
    """
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    samples = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    try:
        for order in shuffle_rounds(variants, rounds):
            for name in order:
                run = variants[name]
                run()
                synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                samples[name].append(1e3 * (time.perf_counter() - start) / calls)
                synchronize()
    finally:
        gc.enable()
    return {name: summarize(values) for name, values in samples.items()}


def time_waiting(
    variants: Mapping[str, Callable[[], object]],
    device: str,
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """Milliseconds from an idle GPU until it has done a call, on the host's clock: what a call
    takes where the host is the slower one.

    In each of the interleaved rounds a variant has its turn: one call that does not count, then
    CALLS_IN_TURN that do. A program makes the same calls again and again, and the host then has
    their code in its caches; right behind another variant it has not. `before` is called in front
    of each call, and not timed.
    """
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    samples = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    try:
        for order in shuffle_rounds(variants, rounds):
            for name in order:
                for call in range(1 + CALLS_IN_TURN):
                    before()
                    synchronize()
                    start = time.perf_counter()
                    variants[name]()
                    synchronize()
                    milliseconds = 1e3 * (time.perf_counter() - start)
                    if call > 0:
                        samples[name].append(milliseconds)
    finally:
        gc.enable()
    return {name: summarize(values) for name, values in samples.items()}
