"""python -m bench.coverage: which products of twelve programs the switch serves. Prints a table.

Each program runs under `cutlass_fused.fp32_matmul` with a report, beside eager PyTorch in fp32 and
the same in float64. A row tells how many calls were served, what was left to PyTorch and why, what
was seen and is never served, what cannot arrive, and the relative L2 errors of both. A result is
right where its error is at most twice eager's plus 1e-6.

`--device cpu` goes through the same kernels without a GPU, by the definitions of the ops.
"""

import argparse
import collections
from collections.abc import Sequence
from typing import NamedTuple

import torch

import cutlass_fused
from cutlass_fused.matmul import _install
from cutlass_fused.matmul._report import SERVED
from cutlass_fused.matmul._seen import NOT_SERVED, SEEN

from .cases.programs import NEVER_ARRIVES, PROGRAMS, Place

COLUMNS = (
    "program",
    "served",
    "left to PyTorch",
    "seen, not served",
    "never arrives",
    "error, ours / eager",
)


class Coverage(NamedTuple):
    """What became of the products of a program; reasons and ops with their numbers of calls."""

    name: str
    served: int
    left: dict[str, int]
    seen: dict[str, int]
    error: float
    eager_error: float

    @property
    def is_right(self) -> bool:
        return self.error <= 2 * self.eager_error + 1e-6

    def describe(self) -> str:
        def count(calls: dict[str, int]) -> str:
            return ", ".join(f"{n} {what}" for what, n in calls.items()) or "-"

        never = NEVER_ARRIVES.get(self.name, "-")
        errors = f"{self.error:.1e} / {self.eager_error:.1e}"
        right = "right" if self.is_right else "WRONG"
        cells = self.name, self.served, count(self.left), count(self.seen), never, errors, right
        return f"| {' | '.join(map(str, cells))} |"


def measure(name: str, device: torch.device, word: str) -> Coverage:
    """The program of this name under this word, beside eager."""

    def run(dtype: torch.dtype) -> torch.Tensor:
        torch.manual_seed(0)
        return PROGRAMS[name](Place(device, dtype))().double()

    truth, eager = run(torch.float64), run(torch.float32)
    with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul(word):
        y = run(torch.float32)
    left: collections.Counter = collections.Counter()
    seen: collections.Counter = collections.Counter()
    for (op, _, outcome), calls in report.rows.items():
        if outcome == NOT_SERVED:
            seen[op] += calls
        elif outcome != SERVED:
            left[outcome] += calls
    served = report.rows.total() - left.total() - seen.total()
    errors = [((result - truth).norm() / truth.norm()).item() for result in (y, eager)]
    return Coverage(name, served, dict(left), dict(seen), *errors)


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
    print(f"| {' | '.join(COLUMNS)} | |")
    print("| --- " * (len(COLUMNS) + 1) + "|")
    wrong = 0
    for name in options.programs:
        coverage = measure(name, torch.device(options.device), options.word)
        print(coverage.describe(), flush=True)
        wrong += not coverage.is_right
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
