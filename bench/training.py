"""python -m bench.training --out DIR: steps of training, into DIR/training.json.

A step is a forward and a backward pass, behind a loss whose gradient is given: of the models of
bench.models, of six whole models, and of MLP potentials, with each torch.nn.Linear and what follows
it replaced by a module of ours. Each variant's gradients are checked once against float64. Then all
variants run in interleaved rounds on cold caches.

"weight" says whether the parameters are written to in front of each step ("new"), as an optimizer
does, or not ("kept"), as where gradients are accumulated. "ms" is the GPU's time; "wall_ms" is the
host's clock from an idle GPU until a step is done, which is what a step takes where it is small.

What a variant or a case cannot do is told, and the others go on.
"""

import functools
import sys
from collections.abc import Sequence

from .measure.checking import report_failures
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.run_cases import run_cases
from .steps.cases import PRECISIONS, VARIANTS, WORDS, StepCase, list_planned, list_step_cases
from .steps.measure import SUITE, measure_step


def measure(
    variants: Sequence[str], rounds: int, failures: dict[tuple, type[Exception]], case: StepCase
) -> list[dict]:
    """The rows of a case; what fails lies in `failures`."""
    own: dict[str, type[Exception]] = {}
    try:
        rows = measure_step("cuda", rounds, variants, own, case)
    except Exception as error:  # of what all variants need, as memory
        print(f"  the case is left out: {type(error).__name__}: {error}", flush=True)
        rows, own["all"] = [], type(error)
    failures.update({(case, name): error for name, error in own.items()})
    return rows


def format_table(rows: list[dict]) -> str:
    """Times under a new and a kept weight, by both clocks, errors, and memory."""
    titles = ("ms", "kept", "wall ms", "kept", "rel. error", "peak MiB")
    lines = [f"  {'variant':15}" + "".join(f"{title:>11}" for title in titles)]
    kept = {row["variant"]: row for row in rows if row["weight"] == "kept"}
    for row in (row for row in rows if row["weight"] == "new"):
        pair = row, kept[row["variant"]]
        cells = [f"{each[key]:.4f}" for key in ("ms", "wall_ms") for each in pair]
        cells += [f"{row['rel_err']:.2e}", f"{row.get('peak_mib', 0):.1f}"]
        lines.append(f"  {row['variant']:15}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where gradients of ours were wrong."""
    parser = build_parser("bench.training", __doc__, rounds=15)
    add_words(parser, "--models", WORDS)
    add_words(parser, "--precisions", PRECISIONS, (), "all for layers, fewer for the others")
    add_words(parser, "--variants", VARIANTS, (), "all, but compiled ones at few potentials")
    options = parser.parse_args(arguments)
    failures: dict[tuple, type[Exception]] = {}
    run_cases(
        open_results(SUITE, options),
        options,
        list_step_cases(options.models, options.precisions),
        functools.partial(list_planned, options.variants),
        functools.partial(measure, options.variants, options.rounds, failures),
        format_table,
    )
    wrong = report_failures(failures)
    return int(any(name.startswith("ours") for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
