"""Times variants of one computation against each other. Private to autotune, demo and benches.

Clock, heat and power move the same kernel by a tenth from one minute to the next, so variants are
never timed one after the other: every round runs each of them once, in an order of its own, because
it also matters what has run just before.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

# Several times the largest L2 cache.
FLUSH_BYTES = 256 * 2**20

# The GPU waits that many times as long as the host takes to queue a run, for a call that takes
# longer than the median one.
WAIT_PER_HOST = 2.0
# The host time of a call that itself waits for the GPU cannot be hidden.
MOST_WAIT_SECONDS = 1e-3
# torch.cuda._sleep counts cycles of the GPU's clock, which goes up to 1.98 GHz on an H200: a slower
# one only waits longer.
CYCLES_PER_SECOND = 2e9
# The launch of a captured graph takes less.
WARM_WAIT_SECONDS = 3e-5


class Timing(NamedTuple):
    """Milliseconds over the rounds."""

    median: float
    least: float
    most: float

    def divide(self, count: int) -> "Timing":
        """That of one of so many equal calls."""
        return Timing(*(value / count for value in self))


def summarize(milliseconds: Iterable[float]) -> Timing:
    values = list(milliseconds)
    return Timing(statistics.median(values), min(values), max(values))


def shuffle_rounds(names: Iterable[str], rounds: int) -> list[list[str]]:
    """The order of each round: all names once, shuffled, the same on every run."""
    names, generator = list(names), random.Random(0)
    return [generator.sample(names, len(names)) for _ in range(rounds)]


def count_wait_cycles(
    host_seconds: Mapping[str, Sequence[float]], most_wait: float = MOST_WAIT_SECONDS
) -> int:
    """For how long the GPU waits in front of each run, given the host times of each variant.

    It is the same for all of them: a GPU that has rested runs faster.
    """
    medians = [statistics.median(seconds) for seconds in host_seconds.values() if seconds]
    longest = max(medians, default=most_wait)
    return int(CYCLES_PER_SECOND * min(WAIT_PER_HOST * longest, most_wait))


def time_in_turns(
    variants: Mapping[str, Callable[[], object]],
    device: str,
    rounds: int = 30,
    warm_up_rounds: int = 5,
    before: Callable[[], object] = lambda: None,
    most_wait: float = MOST_WAIT_SECONDS,
) -> dict[str, Timing]:
    """The time of each variant on `device`, "cuda" or "cpu", over interleaved rounds.

    Args:
        before: called in front of each run, and not timed.
        most_wait: seconds for which the GPU may wait for the host to queue a run.
    """
    warm_up, orders = (shuffle_rounds(variants, count) for count in (warm_up_rounds, rounds))
    if device == "cuda":
        samples = _time_rounds_on_gpu(variants, warm_up, orders, before, most_wait)
    else:
        samples = _time_rounds_on_cpu(variants, warm_up, orders, before)
    return {name: summarize(samples[name]) for name in variants}


def time_warm_in_turns(
    variants: Mapping[str, Callable[[], object]], rounds: int = 30, warm_up_rounds: int = 2
) -> dict[str, Timing]:
    """The same on the GPU, where the L2 cache holds what the run before left there."""
    samples = {name: [] for name in variants}
    for index, order in enumerate(shuffle_rounds(variants, warm_up_rounds + rounds)):
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in order}
        for name in order:
            start, end = events[name]
            variants[name]()  # so that the timed run finds its own operands
            # Meanwhile the host queues the run, so that the events do not time the host.
            torch.cuda._sleep(int(CYCLES_PER_SECOND * WARM_WAIT_SECONDS))
            start.record()
            variants[name]()
            end.record()
        torch.cuda.synchronize()
        if index >= warm_up_rounds:
            for name, (start, end) in events.items():
                samples[name].append(start.elapsed_time(end))
    return {name: summarize(values) for name, values in samples.items()}


def _time_rounds_on_gpu(variants, warm_up, orders, before, most_wait):
    _, host_seconds = _run_rounds_on_gpu(variants, warm_up, before, wait_cycles=0)
    wait_cycles = count_wait_cycles(host_seconds, most_wait)
    samples, _ = _run_rounds_on_gpu(variants, orders, before, wait_cycles)
    return samples


def _run_rounds_on_gpu(variants, orders, before, wait_cycles):
    # Overwritten before each run: inputs come from memory, as they do in a model whose other layers
    # have run in between.
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    events = {name: [] for name in variants}
    host_seconds = {name: [] for name in variants}
    for order in orders:
        for name in order:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before()
            flush.zero_()
            # Meanwhile the host queues the whole run, so that the events do not time the host.
            torch.cuda._sleep(wait_cycles)
            begin = time.perf_counter()
            start.record()
            variants[name]()
            end.record()
            host_seconds[name].append(time.perf_counter() - begin)
            events[name].append((start, end))
    torch.cuda.synchronize()
    samples = {
        name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()
    }
    return samples, host_seconds


def _time_rounds_on_cpu(variants, warm_up, orders, before):
    _run_rounds_on_cpu(variants, warm_up, before)
    return _run_rounds_on_cpu(variants, orders, before)


def _run_rounds_on_cpu(variants, orders, before):
    samples = {name: [] for name in variants}
    for order in orders:
        for name in order:
            before()
            start = time.perf_counter()
            variants[name]()
            samples[name].append(1e3 * (time.perf_counter() - start))
    return samples
