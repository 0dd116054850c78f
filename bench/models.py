"""python -m bench.models --out DIR: the models against their peers, into DIR/models.json.

All variants of a case run interleaved, on cold caches, under no_grad, after one check of each
against float64. What DIR/models.json already holds is not measured again.
"""

import sys
import time
from collections.abc import Sequence

from cutlass_fused import demo

from .cases import MODELS, Case, list_cases
from .machine import open_results
from .options import add_words, build_parser
from .peers import VARIANTS, find_obstacle
from .results import case_of
from .timing import measure_case

SUITE = "models"


def list_possible(variants: Sequence[str], case: Case) -> list[str]:
    """The variants that can be had; why the others cannot is printed."""
    possible = []
    for name in variants:
        if obstacle := find_obstacle(name, case):
            print(f"  {name}: skipped: {obstacle}")
        else:
            possible.append(name)
    return possible


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
    add_words(parser, "--precisions", demo.PRECISIONS)
    add_words(parser, "--variants", VARIANTS)
    options = parser.parse_args(arguments)
    file = open_results(SUITE, options)
    start = time.perf_counter()
    for case in list_cases(options.models, options.precisions):
        print(case, flush=True)
        variants = list_possible(options.variants, case)
        measured = file.list_variants(case_of(case.describe(SUITE)))
        if measured.issuperset(variants) and not options.again:
            print("  measured already")
            continue
        rows = measure_case(SUITE, case, variants, "cuda", options.rounds)
        file.replace(rows)
        print(format_table(rows), flush=True)
    print(f"{file.path}: {len(file.rows)} rows, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
