"""python -m bench.accuracy --out DIR: errors and times of one fp32 product, into DIR/accuracy.json.

Products without bias, of matrices of ten kinds ("model" names the kind): forward with K from 1 to
131072, the gradients of a Linear, whose sums go over N and M, and batches. Errors are against
float64: relative L2; the median and the largest over the outputs of |error| / (|x| @ |weight|.T);
the largest relative L2 error of a column, and of a row. Then the variants are timed, interleaved,
on cold caches.

ours is cutlass_fused.functional.linear, or what its gradients call, eager is cuBLAS in the same
precision, and bf16x3, forward under "ieee" only, three products of bf16 numbers by cuBLAS. Where a
column or a row of ours errs more than twice as much as cuBLAS's and a unit in the last place, a
line says so. --budget ends a run between two cases; the same command goes on.
"""

import functools
import sys
from collections.abc import Sequence

import torch

from cutlass_fused import comparison
from cutlass_fused.timing import time_in_turns

from .cases.accuracy_cases import LAYOUTS, PRECISIONS, AccuracyCase, list_accuracy_cases
from .cases.accuracy_inputs import INPUTS
from .cases.accuracy_variants import VARIANTS, Product, draw_product, list_accuracy_variants
from .cases.cases import Run
from .measure.accuracy_errors import (
    Errors,
    check_errors,
    compute_errors,
    compute_product_truth,
    list_excesses,
)
from .measure.checking import prepare_each
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.run_cases import run_cases
from .measure.timing import make_row

SUITE = "accuracy"


def prepare_products(
    product: Product, variants: Sequence[str]
) -> tuple[dict[str, Run], dict[str, Errors]]:
    """What to run, and its errors, for each variant that can be had; raises WrongResult."""
    truth, errors = compute_product_truth(product.x, product.weight), {}

    def prepare(name: str) -> tuple[Run, float]:
        run = VARIANTS[name](product)
        found = compute_errors(run(), truth)
        check_errors(product.case, name, found)
        errors[name] = found
        return run, found.rel_err

    runs, _ = prepare_each(variants, prepare)
    return runs, errors


def measure_product(
    device: str, rounds: int, variants: Sequence[str], case: AccuracyCase
) -> list[dict]:
    """The rows of one case, all from one run."""
    product, names = draw_product(case, device), list_accuracy_variants(variants, case)
    with torch.no_grad(), comparison.set_matmul_precision(product.setting):
        runs, errors = prepare_products(product, names)
        timings = time_in_turns(runs, device, rounds)
    part = case.describe(SUITE)
    return [make_row(part, name, timings[name], **errors[name]._asdict()) for name in runs]


def format_table(rows: list[dict]) -> str:
    """Times, errors, and each variant's time divided by ours; then what is over cuBLAS's errors."""
    ours = next((row["ms"] for row in rows if row["variant"] == "ours"), None)
    titles = ("ms", "rel. error", "median", "largest", "column", "row", "/ours")
    lines = [f"  {'variant':13}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        cells = [f"{row['ms']:.4f}", *(f"{row[key]:.2e}" for key in Errors._fields)]
        cells.append("" if ours is None else f"{row['ms'] / ours:.3f}")
        lines.append(f"  {row['variant']:13}" + "".join(f"{cell:>11}" for cell in cells))
    for key, ratio in list_excesses(rows).items():
        lines.append(f"  {key}: ours is {ratio:.2f} times cuBLAS's, which is too much")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.accuracy", __doc__, rounds=50)
    add_words(parser, "--models", INPUTS)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--layouts", LAYOUTS)
    add_words(parser, "--variants", VARIANTS)
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_accuracy_cases(options.models, options.precisions, options.layouts),
        functools.partial(list_accuracy_variants, options.variants),
        functools.partial(measure_product, "cuda", options.rounds, options.variants),
        format_table,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
