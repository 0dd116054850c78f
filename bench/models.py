"""python -m bench.models --out DIR: the models against their peers, into DIR/models.json.

All variants of a case run interleaved, on cold caches, under no_grad, after one check of each
against float64. What DIR/models.json already holds is not measured again, so a run may be cut into
pieces: --budget ends it between two cases.
"""

import functools
import sys
from collections.abc import Sequence

from cutlass_fused import comparison

from .cases.cases import MODELS, Case, list_cases
from .cases.peers import VARIANTS, list_possible, tell_obstacles
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.results import MODES
from .measure.run_cases import run_cases
from .measure.timing import measure_case

SUITE = "models"


def measure(variants: Sequence[str], rounds: int, case: Case) -> list[dict]:
    """The rows of a case; what cannot be had is told."""
    tell_obstacles(variants, case)
    return measure_case(SUITE, case, list_possible(variants, case), "cuda", rounds)


def format_table(rows: list[dict]) -> str:
    """Times, errors, and each variant's time divided by ours."""
    ours = next((row["ms"] for row in rows if row["variant"] == "ours"), None)
    titles = ("ms", "min", "max", "TFLOP/s", "rel. error", "/ours")
    lines = [f"  {'variant':13}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        cells = [f"{row[key]:.4f}" for key in ("ms", "ms_min", "ms_max")]
        cells.append(f"{2e-9 * row['M'] * row['N'] * row['K'] / row['ms']:.1f}")
        cells.append(f"{row['rel_err']:.2e}")
        cells.append("" if ours is None else f"{row['ms'] / ours:.3f}")
        lines.append(f"  {row['variant']:13}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.models", __doc__, rounds=100)
    add_words(parser, "--models", MODELS)
    add_words(parser, "--modes", MODES)
    add_words(parser, "--precisions", comparison.PRECISIONS)
    add_words(parser, "--variants", VARIANTS)
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_cases(options.models, options.precisions, options.modes),
        functools.partial(list_possible, options.variants),
        functools.partial(measure, options.variants, options.rounds),
        format_table,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
