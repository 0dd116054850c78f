"""python -m bench.coverage: which products of twelve programs the switch serves. Prints a table.

Each program runs under `cutlass_fused.fp32_matmul` with a report, beside itself without the switch
and the same in float64. A row tells how many calls were served, by PyTorch's ops or by compiled
graphs themselves, what was left to PyTorch and why, what was seen and is never served, the relative
L2 errors of both, and their times: medians of whole runs, the host's part included, in turns of a
few runs between which the switch is set. The programs are small, so that this part is most of many
of them. A result is right where its error is
at most twice PyTorch's plus 1e-6.

`--device cpu` goes through the same kernels without a GPU, by the definitions of the ops.
"""

import argparse
import collections
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

import cutlass_fused
from cutlass_fused.graphs import _products
from cutlass_fused.matmul import _install
from cutlass_fused.matmul._report import COMPILED, SERVED
from cutlass_fused.matmul._seen import NOT_SERVED, SEEN
from cutlass_fused.timing import shuffle_rounds

from .cases.programs import PROGRAMS, Place, Run

COLUMNS = (
    "program",
    "served",
    "served in graphs",
    "left to PyTorch",
    "seen, not served",
    "error, ours / PyTorch",
    "ms, ours / PyTorch",
)
BLOCKS, BLOCK = 20, 5  # turns of each, and runs of a turn


class Coverage(NamedTuple):
    """What became of the products of a program; reasons and ops with their numbers of calls."""

    name: str
    served: int
    compiled: int
    left: dict[str, int]
    seen: dict[str, int]
    error: float
    eager_error: float
    ms: float
    eager_ms: float

    @property
    def is_right(self) -> bool:
        return self.error <= 2 * self.eager_error + 1e-6

    def describe(self) -> str:
        def count(calls: dict[str, int]) -> str:
            return ", ".join(f"{n} {what}" for what, n in calls.items()) or "-"

        calls = self.served, self.compiled, count(self.left), count(self.seen)
        errors = f"{self.error:.1e} / {self.eager_error:.1e}"
        times = f"{self.ms:.3f} / {self.eager_ms:.3f}"
        right = "right" if self.is_right else "WRONG"
        cells = self.name, *calls, errors, times, right
        return f"| {' | '.join(map(str, cells))} |"


def time_in_blocks(runs: dict[str, tuple[str | None, Run]]) -> dict[str, float]:
    """Median milliseconds by the host's clock, around what it waits for, of (word, run)."""
    samples = {name: [] for name in runs}
    for order in shuffle_rounds(runs, BLOCKS):
        for name in order:
            word, run = runs[name]
            with cutlass_fused.fp32_matmul(word):
                run()  # the first behind another is not timed
                for _ in range(BLOCK):
                    start = time.perf_counter()
                    run()
                    samples[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in samples.items()}


def measure(name: str, device: torch.device, word: str) -> Coverage:
    """The program of this name under this word, beside itself without it."""

    def build(dtype: torch.dtype) -> Run:
        torch.manual_seed(0)
        return PROGRAMS[name](Place(device, dtype))

    truth, eager_run, our_run = build(torch.float64)(), build(torch.float32), build(torch.float32)

    def run(own: Run) -> torch.Tensor:
        y = own()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return y

    runs = {"ours": (word, lambda: run(our_run)), "eager": (None, lambda: run(eager_run))}
    with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul(word):
        first = run(our_run)
    eager = run(eager_run)
    times = time_in_blocks(runs)
    # Behind warm-up: what is captured into a CUDA graph is right as a replay too.
    with cutlass_fused.fp32_matmul(word):
        last = run(our_run)

    calls = collections.Counter()
    left, seen = collections.Counter(), collections.Counter()
    for (op, _, outcome), number in report.rows.items():
        if outcome == NOT_SERVED:
            seen[op] += number
        elif outcome in (SERVED, COMPILED):
            calls[outcome] += number
        else:
            left[outcome] += number
    errors = [((y.double() - truth).norm() / truth.norm()).item() for y in (first, last, eager)]
    return Coverage(
        name,
        calls[SERVED],
        calls[COMPILED],
        dict(left),
        dict(seen),
        max(errors[:2], key=lambda error: (error != error, error)),  # NaN is the largest
        errors[2],
        times["ours"],
        times["eager"],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a result is wrong, else 0."""
    parser = argparse.ArgumentParser(prog="bench.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--word", default="ieee", choices=("ieee", "tf32"))
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        _install.install("CPU")
        _install.put_over("seen", "CPU", SEEN)
        _products.DEVICES.add("cpu")
    print(f"| {' | '.join(COLUMNS)} | |")
    print("| --- " * (len(COLUMNS) + 1) + "|")
    wrong = 0
    for name in options.programs:
        # A report counts what a graph serves when it is compiled, not where one comes from a cache.
        with torch.compiler.config.patch(force_disable_caches=True):
            coverage = measure(name, torch.device(options.device), options.word)
        print(coverage.describe(), flush=True)
        wrong += not coverage.is_right
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
