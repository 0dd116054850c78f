"""python -m bench.chains --out DIR: chains of small layers, into DIR/chains.json.

An MLP of eight layers with a ReLU between them, in inference, by the width of its layers and the
number of rows. Such layers take the GPU less time than the host needs to launch them, so that what
counts is how they are launched: `ours` is the model behind cutlass_fused.fuse, `ours_replays` the
same with graphs=True, `ours_graphs` the same captured into a CUDA graph by the caller. Beside them
are eager PyTorch, torch.compile, and torch.compile with CUDA graphs.

Each is checked once against float64. Then all run in interleaved rounds on cold caches. "ms" is the
GPU's time; "wall_ms" is the host's clock from an idle GPU until a call is done.
"""

import functools
import sys
from collections.abc import Sequence

import torch

from ..end_to_end.__main__ import format_table
from ..measure.checking import measure_or_leave_out, report_failures
from ..measure.machine import open_results
from ..measure.options import add_words, build_parser
from ..measure.run_cases import run_cases
from ..steps.measure import measure_problem
from .cases import PRECISIONS, ROWS, VARIANTS, WIDTHS, ChainCase, build, build_problem, list_cases

SUITE = "chains"

Failures = dict[tuple[ChainCase, str], type[Exception]]


def measure(
    device: str, rounds: int, variants: Sequence[str], failures: Failures, case: ChainCase
) -> list[dict]:
    """The rows of a case; what fails lies in `failures`."""

    @torch.no_grad()
    def run(own: dict[str, type[Exception]]) -> list[dict]:
        problem = build_problem(case, device)
        return measure_problem(SUITE, problem, variants, device, rounds, own, ["kept"], build)

    return measure_or_leave_out(case, failures, run)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a result of ours was wrong."""
    parser = build_parser("bench.chains", __doc__, rounds=50)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--widths", [str(width) for width in WIDTHS])
    add_words(parser, "--rows", [str(m) for m in ROWS])
    add_words(parser, "--variants", VARIANTS)
    options = parser.parse_args(arguments)
    widths, rows = ([int(each) for each in words] for words in (options.widths, options.rows))
    failures: Failures = {}
    run_cases(
        open_results(SUITE, options),
        options,
        list_cases(options.precisions, widths, rows),
        lambda case: options.variants,
        functools.partial(measure, "cuda", options.rounds, options.variants, failures),
        format_table,
    )
    wrong = report_failures(failures)
    return int(any(name.startswith("ours") or name == "all" for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
