"""python -m bench.end_to_end --out DIR: real models, fused as they are, into DIR/end_to_end.json.

Eight models of examples/models, in inference and in a step of training, by batches of 1 to 16384
rows: `ours` is the model behind cutlass_fused.fuse, `ours_graphs` the same in a captured CUDA
graph. `ours_compile` is the plain model through torch.compile(backend="cutlass_fused"), and
`ours_compile_graphs` the same with mode="reduce-overhead", where there is such a backend.
All variants of a case run interleaved, on cold caches, after one check of each against float64.
"ms" is the GPU's time, "wall_ms" the host's clock from an idle GPU until a call is done.

All cases take longer than most machines are lent: --models, --passes, --precisions and --batches
cut them into pieces, and --budget ends a run between two cases. The same command goes on.
"""

import functools
import sys
from collections.abc import Sequence

from ..measure.checking import measure_or_leave_out, report_failures
from ..measure.machine import open_results
from ..measure.options import add_words, build_parser
from ..measure.run_cases import list_todo, run_cases
from .cases import (
    BATCHES,
    MODELS,
    PASSES,
    PRECISIONS,
    VARIANTS,
    RealCase,
    list_cases,
    list_variants,
)
from .compile_ahead import COMPILED, Ahead, add_processes
from .measure import SUITE, measure

# What the estimate is made of, before any case is timed: the rounds of a case, and what one
# compiled variant adds, of which tracing cannot be done by several processes.
SECONDS = {"case": 4.0, "trace": 2.0, "compile": 6.0}
# Graphs of a step are two, and with gradients inside they are long.
COMPILE_FACTORS = {"inference": 1, "step": 2}

Failures = dict[tuple[RealCase, str], type[Exception]]


def estimate_seconds(cases: Sequence[RealCase], variants: Sequence[str], processes: int) -> float:
    seconds = 0.0
    for case in cases:
        compiled = [name for name in list_variants(variants, case) if name in COMPILED]
        each = SECONDS["trace"] + SECONDS["compile"] / processes
        seconds += SECONDS["case"] + COMPILE_FACTORS[case.which] * len(compiled) * each
    return seconds


def measure_ahead(
    ahead: Ahead, rounds: int, variants: Sequence[str], failures: Failures, case: RealCase
) -> list[dict]:
    """The rows of a case; what fails is told, lies in `failures`, and is left out."""
    ahead.prepare(case)
    return measure_or_leave_out(
        case, failures, lambda own: measure("cuda", rounds, variants, own, case)
    )


def format_table(rows: list[dict]) -> str:
    """Times by both clocks, errors, and memory."""
    titles = ("ms", "min", "wall ms", "rel. error", "peak MiB")
    lines = [f"  {'variant':15}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        cells = [f"{row[key]:.4f}" for key in ("ms", "ms_min", "wall_ms")]
        cells += [f"{row['rel_err']:.2e}", f"{row.get('peak_mib', 0):.1f}"]
        lines.append(f"  {row['variant']:15}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a result of ours was wrong."""
    parser = build_parser("bench.end_to_end", __doc__, rounds=15)
    add_words(parser, "--models", MODELS)
    add_words(parser, "--passes", PASSES)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--batches", [str(m) for m in BATCHES])
    add_words(parser, "--variants", VARIANTS)
    add_processes(parser)
    options = parser.parse_args(arguments)
    batches = [int(m) for m in options.batches]
    cases = list_cases(options.models, options.passes, options.precisions, batches)
    file = open_results(SUITE, options)

    todo = list_todo(file, options, cases, functools.partial(list_variants, options.variants))
    minutes = estimate_seconds(todo, options.variants, options.processes) / 60
    print(
        f"{len(todo)} cases, about {minutes:.0f} minutes, most of which is to compile", flush=True
    )
    failures: Failures = {}
    with Ahead(todo, options.variants, options.processes) as ahead:
        run_cases(
            file,
            options,
            cases,
            functools.partial(list_variants, options.variants),
            functools.partial(measure_ahead, ahead, options.rounds, options.variants, failures),
            format_table,
        )
    wrong = report_failures(failures)
    return int(any(name.startswith("ours") or name == "all" for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
