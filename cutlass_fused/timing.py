"""Times variants of one computation against each other. Private to the demo and the benches.

Clock, heat and power move the same kernel by a tenth from one minute to the next, so variants are
never timed one after the other: every round runs each of them once, in an order of its own, because
it also matters what has run just before.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch

# Several times the largest L2 cache.
FLUSH_BYTES = 256 * 2**20


class Timing(NamedTuple):
    """Milliseconds over the rounds."""

    median: float
    least: float
    most: float


def summarize(milliseconds: Iterable[float]) -> Timing:
    values = list(milliseconds)
    return Timing(statistics.median(values), min(values), max(values))


def shuffle_rounds(names: Iterable[str], rounds: int) -> list[list[str]]:
    """The order of each round: all names once, shuffled, the same on every run."""
    names, generator = list(names), random.Random(0)
    return [generator.sample(names, len(names)) for _ in range(rounds)]


def time_in_turns(
    variants: Mapping[str, Callable[[], object]],
    device: str,
    rounds: int = 30,
    warm_up_rounds: int = 5,
) -> dict[str, Timing]:
    """The time of each variant on `device`, "cuda" or "cpu", over interleaved rounds."""
    run_rounds = _run_rounds_on_gpu if device == "cuda" else _run_rounds_on_cpu
    run_rounds(variants, shuffle_rounds(variants, warm_up_rounds))
    samples = run_rounds(variants, shuffle_rounds(variants, rounds))
    return {name: summarize(samples[name]) for name in variants}


def _run_rounds_on_gpu(variants, orders):
    # Overwritten before each run: inputs come from memory, as they do in a model whose other layers
    # have run in between. Meanwhile the host gets ahead of the GPU, so that the events do not time
    # the host.
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    events = {name: [] for name in variants}
    for order in orders:
        for name in order:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            start.record()
            variants[name]()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()
    }


def _run_rounds_on_cpu(variants, orders):
    samples = {name: [] for name in variants}
    for order in orders:
        for name in order:
            start = time.perf_counter()
            variants[name]()
            samples[name].append(1e3 * (time.perf_counter() - start))
    return samples
