"""python -m bench.tails --out DIR: small models with every kind of tail, into DIR/tails.json.

A linear layer of 512 inputs and 768 outputs with something behind it, as models have it: an
activation, a norm, a softmax, a sum along rows, another layer. They are those that the tests hold
`cutlass_fused.fuse` against, here at a user's size, in inference and in a step of training. `ours`
is the model behind `fuse`, `ours_graphs` the same captured into a CUDA graph. Beside them are eager
PyTorch, torch.compile, and torch.compile with CUDA graphs: where one of them is faster, `fuse` has
made a model slower than its user could have had it.

Each is checked once against float64. Then all run in interleaved rounds on cold caches. "ms" is the
GPU's time; "wall_ms" is the host's clock from an idle GPU until a call is done.

To compile takes longer than all that is timed, and is done ahead by several processes: for all
models of a pass, a number of rows and a precision. --models, --passes, --precisions and --rows cut
the cases into pieces, and --budget ends a run between two of them. The same command goes on.
"""

import argparse
import functools
import sys
from collections.abc import Sequence

import torch

from ..end_to_end.__main__ import format_table
from ..end_to_end.compile_ahead import Ahead, add_processes
from ..end_to_end.variants import build
from ..measure.checking import measure_or_leave_out, report_failures
from ..measure.machine import open_results
from ..measure.options import add_words, build_parser
from ..measure.run_cases import list_todo, run_cases
from ..steps.measure import measure_problem
from .cases import (
    MODELS,
    PASSES,
    PRECISIONS,
    ROWS,
    VARIANTS,
    TailCase,
    build_problem,
    list_cases,
)
from .compile_ahead import compile_tail, group_tails

SUITE = "tails"
WEIGHTS = {"inference": "kept", "step": "new"}

Failures = dict[tuple[TailCase, str], type[Exception]]


def parse_models(text: str) -> list[str]:
    """The models of "gelu;batch norm, s;7", in the order of the tests: names have commas, so that
    semicolons part their beginnings, or their numbers from 1 on."""
    chosen = set()
    for word in text.split(";"):
        found = [
            name
            for number, name in enumerate(MODELS, 1)
            if (word == str(number) if word.isdecimal() else word and name.startswith(word))
        ]
        if not found:
            raise argparse.ArgumentTypeError(
                f"no model begins with {word!r}, or has that number: there are {name_models()}"
            )
        chosen.update(found)
    return [name for name in MODELS if name in chosen]


def name_models() -> str:
    return "; ".join(f"{number} {name}" for number, name in enumerate(MODELS, 1))


def measure_ahead(
    ahead: Ahead, rounds: int, variants: Sequence[str], failures: Failures, case: TailCase
) -> list[dict]:
    ahead.prepare(case)
    return measure("cuda", rounds, variants, failures, case)


def measure(
    device: str, rounds: int, variants: Sequence[str], failures: Failures, case: TailCase
) -> list[dict]:
    """The rows of a case; what fails lies in `failures`."""

    def run(own: dict[str, type[Exception]]) -> list[dict]:
        problem, weights = build_problem(case, device), [WEIGHTS[case.which]]
        with torch.set_grad_enabled(case.which == "step"):
            return measure_problem(SUITE, problem, variants, device, rounds, own, weights, build)

    return measure_or_leave_out(case, failures, run)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a result of ours was wrong."""
    parser = build_parser("bench.tails", __doc__, rounds=50)
    parser.add_argument(
        "--models",
        type=parse_models,
        default=list(MODELS),
        metavar="A;B",
        help=f"beginnings of names, or numbers, among {name_models()}; default: all",
    )
    add_words(parser, "--passes", PASSES)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--rows", [str(m) for m in ROWS])
    add_words(parser, "--variants", VARIANTS)
    add_processes(parser)
    options = parser.parse_args(arguments)
    rows = [int(m) for m in options.rows]
    failures: Failures = {}
    file = open_results(SUITE, options)
    cases = list_cases(options.models, options.passes, options.precisions, rows)
    todo = list_todo(file, options, cases, lambda case: options.variants)
    of_ahead = todo, options.variants, options.processes, compile_tail, group_tails
    with Ahead(*of_ahead) as ahead:
        run_cases(
            file,
            options,
            cases,
            lambda case: options.variants,
            functools.partial(measure_ahead, ahead, options.rounds, options.variants, failures),
            format_table,
        )
    wrong = report_failures(failures)
    return int(any(name.startswith("ours") or name == "all" for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
