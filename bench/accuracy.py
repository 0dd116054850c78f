"""python -m bench.accuracy --out DIR: errors and times of one fp32 product, into DIR/accuracy.json.

A product without bias, of matrices of seven kinds ("model" names the kind), K from 1 to 131072.
Errors are against float64: relative L2, and the median and the largest over the outputs of
|error| / (|x| @ |weight|.T). Then the variants are timed, interleaved, on cold caches.

ours is cutlass_fused.functional.linear, eager is cuBLAS in the same precision, and bf16x3, under
"ieee" only, three products of bf16 numbers by cuBLAS. --budget ends a run between two cases; the
same command goes on.
"""

import functools
import sys
from collections.abc import Sequence

import torch

from cutlass_fused import comparison
from cutlass_fused.timing import time_in_turns

from .cases.accuracy_inputs import INPUTS
from .cases.accuracy_variants import VARIANTS, Product, draw_product, list_accuracy_variants
from .cases.cases import Case, Run
from .measure.accuracy_errors import Errors, check_errors, compute_errors, compute_product_truth
from .measure.checking import prepare_each
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.run_cases import run_cases
from .measure.timing import make_row

SUITE = "accuracy"
PRECISIONS = ("ieee", "tf32")
# On a GPU a product of the longest, in float64, takes a few milliseconds.
SIZES = (1, 8, 32, 64, 256, 1024, 8192, 32768, 131072)
SHAPES = (
    *((512, 512, k) for k in SIZES),
    (1024, 8192, 8192),  # that of the models, which fills the GPU: here times can be compared
)


def list_accuracy_cases(models: Sequence[str], precisions: Sequence[str]) -> list[Case]:
    return [
        Case(name, "eval", precision, *shape)
        for name in models
        for precision in precisions
        for shape in SHAPES
    ]


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


def measure_product(device: str, rounds: int, variants: Sequence[str], case: Case) -> list[dict]:
    """The rows of one case, all from one run."""
    product, names = draw_product(case, device), list_accuracy_variants(variants, case)
    with torch.no_grad(), comparison.set_matmul_precision(product.setting):
        runs, errors = prepare_products(product, names)
        timings = time_in_turns(runs, device, rounds)
    part = case.describe(SUITE)
    return [make_row(part, name, timings[name], **errors[name]._asdict()) for name in runs]


def format_table(rows: list[dict]) -> str:
    """Times, errors, and each variant's time divided by ours."""
    ours = next((row["ms"] for row in rows if row["variant"] == "ours"), None)
    titles = ("ms", "rel. error", "median", "largest", "/ours")
    lines = [f"  {'variant':13}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        cells = [f"{row['ms']:.4f}", *(f"{row[key]:.2e}" for key in Errors._fields)]
        cells.append("" if ours is None else f"{row['ms'] / ours:.3f}")
        lines.append(f"  {row['variant']:13}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.accuracy", __doc__, rounds=50)
    add_words(parser, "--models", INPUTS)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--variants", VARIANTS)
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_accuracy_cases(options.models, options.precisions),
        functools.partial(list_accuracy_variants, options.variants),
        functools.partial(measure_product, "cuda", options.rounds, options.variants),
        format_table,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
