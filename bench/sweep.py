"""python -m bench.sweep --out DIR: model 12 and a linear over many shapes, into DIR/sweep.json.

All variants of a case are replayed as CUDA graphs, interleaved, on cold caches, after one check of
each against float64. The check is of 64 rows of the result, always the same, among them the first
and the last, or of all if there are no more: the whole in float64 would take longer than the rest.

bf16, model 12: 13 sizes of M by 10 of N x K. fp16, the linear, and max-autotune: 24 shapes of them.
--budget ends a run between two cases; the same command goes on. --sizes 64x512x256,1x1000x2048
times those instead: your own layers.
"""

import functools
import sys

import torch

from .cases.cases import Case, Problem, build_problem
from .cases.peers import tell_obstacles
from .cases.sweep_cases import (
    MODELS,
    PRECISIONS,
    SIZES,
    VARIANTS,
    list_planned,
    list_sweep_cases,
    list_sweep_variants,
)
from .measure.graphs import Graphs
from .measure.machine import open_results
from .measure.options import add_sizes, add_words, build_parser
from .measure.run_cases import run_cases
from .measure.timing import measure_problem

SUITE = "sweep"
CHECKED_ROWS = 64

# Long calls need fewer rounds. At 600 TFLOP/s a variant takes a quarter of a second.
FEWEST_ROUNDS = 10
FLOPS_IN_ALL_ROUNDS = 2**47


def choose_rounds(most: int, case: Case) -> int:
    rounds = FLOPS_IN_ALL_ROUNDS // (2 * case.m * case.n * case.k)
    return min(most, max(rounds, FEWEST_ROUNDS))


def choose_rows(m: int) -> torch.Tensor:
    """Those that are checked, in order: the first, the last, and others drawn at random."""
    if m <= CHECKED_ROWS:
        return torch.arange(m)
    generator = torch.Generator().manual_seed(0)
    inner = 1 + torch.randperm(m - 2, generator=generator)[: CHECKED_ROWS - 2]
    return torch.cat([torch.tensor([0, m - 1]), inner]).sort().values


@functools.lru_cache(maxsize=1)
def build_largest(case: Case, device: str) -> Problem:
    return build_problem(case, device)


def build_sweep_problem(case: Case, device: str) -> Problem:
    """Cases that differ in M only have one weight, and their x are the first rows of one matrix."""
    largest = build_largest(case._replace(m=max(*SIZES, case.m)), device)
    return largest._replace(case=case, x=largest.x[: case.m])


def measure_shape(device: str, rounds: int, variants: list[str], case: Case) -> list[dict]:
    """The rows of one case, all from one run; what cannot be had is told."""
    tell_obstacles(list_planned(variants, case), case)
    problem, names = build_sweep_problem(case, device), list_sweep_variants(variants, case)
    rounds, rows = choose_rounds(rounds, case), choose_rows(case.m)
    with Graphs() as graphs:
        return measure_problem(
            SUITE, problem, names, device, rounds, capture=graphs.capture, rows=rows
        )


def format_line(rows: list[dict]) -> str:
    """Our time, and how many times as long the others take."""
    times = {row["variant"]: row["ms"] for row in rows}
    ours = times.pop("ours", None)
    if ours is None:
        return "  " + ", ".join(f"{name} {ms:.4f} ms" for name, ms in times.items())
    ratios = ", ".join(f"{name} {ms / ours:.3f}" for name, ms in times.items())
    return f"  ours {ours:.4f} ms; /ours: {ratios}"


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.sweep", __doc__, rounds=100)
    add_words(parser, "--models", MODELS)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--variants", VARIANTS)
    add_sizes(parser)
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_sweep_cases(options.models, options.precisions, options.sizes),
        functools.partial(list_sweep_variants, options.variants),
        functools.partial(measure_shape, "cuda", options.rounds, options.variants),
        format_line,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
