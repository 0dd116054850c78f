"""python -m bench.products --out DIR: fp32 products beside cuBLAS's, into DIR/products.json.

The three products of a Linear (forward, and the gradients of x and of the weight) at 36 shapes and
at those of real models, and the batches of their attention, in turns, after one check of each
against float64. "ours" is the op that functions and gradients of fp32 call; "cublas" is
torch.matmul under the same precision, with PyTorch's other settings as they are: it may add parts
of 16-bit products in 16 bits, and ours does not. bf16 and fp16 have twenty shapes, where
--precisions names them. "kept" in front of a product with a weight: its parts are there already, as
they are while a weight does not change. `--layouts mixed` times bf16 rows with fp32
weights, which PyTorch multiplies as fp32, and whose result it rounds. `--sizes
64x512x256,2048x96x1000` times Linears of those M x N x K instead: your own.

Rows with "graph" are of CUDA graphs of ten calls, whose operands the L2 cache holds where they fit:
what a small layer in a captured model takes. Those without are of single calls on cold caches.
"""

import functools
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from cutlass_fused import comparison
from cutlass_fused.timing import time_in_turns, time_warm_in_turns

from .cases.products import (
    LAYOUTS,
    MIXED,
    NARROW,
    PRECISIONS,
    SHAPES,
    VARIANTS,
    ProductCase,
    build_operands,
    build_runs,
    list_product_cases,
)
from .measure.checking import check_error
from .measure.graphs import Graphs
from .measure.machine import open_results
from .measure.options import add_sizes, add_words, build_parser
from .measure.run_cases import run_cases
from .measure.timing import make_row

SUITE = "products"
CALLS = 10  # in a graph
CHECKED_ROWS = 256
# A few times what sums in fp32, numbers of 11 bits, and one rounding of the result lose.
LARGEST_ERRORS = {"ieee": 3e-6, "tf32": 1e-3, "bf16": 5e-3, "fp16": 6e-4}
FEWEST_ROUNDS = 5
FLOPS_IN_ALL_ROUNDS = 2**42


def choose_rounds(most: int, case: ProductCase) -> int:
    rounds = FLOPS_IN_ALL_ROUNDS // (2 * case.batch * case.m * case.n * case.k)
    return min(most, max(rounds, FEWEST_ROUNDS))


def find_error(y: Tensor, a: Tensor, b: Tensor) -> float:
    """The relative error of the first rows, or matrices."""
    b = b[:CHECKED_ROWS] if b.dim() == 3 else b
    truth = a[:CHECKED_ROWS].double() @ b.double()
    return ((y[:CHECKED_ROWS] - truth).norm() / truth.norm()).item()


def repeat(run: Callable[[], Tensor]) -> Tensor:
    for _ in range(CALLS):
        y = run()
    return y


def measure_product(device: str, rounds: int, variants: list[str], case: ProductCase) -> list[dict]:
    """The rows of one case, warm and cold, all from one run."""
    a, b = build_operands(case, device)
    rounds, part = choose_rounds(rounds, case), case.describe(SUITE)
    setting = comparison.PRECISIONS[case.precision].setting
    with torch.no_grad(), comparison.set_matmul_precision(setting), Graphs() as graphs:
        runs = {name: run for name, run in build_runs(case, a, b).items() if name in variants}
        errors = {name: find_error(run(), a, b) for name, run in runs.items()}
        largest = LARGEST_ERRORS["bf16" if case.layout == MIXED else case.precision]
        for name, error in errors.items():
            check_error(name, error, largest)
        captured = {
            name: graphs.capture(functools.partial(repeat, run)) for name, run in runs.items()
        }
        warm = time_warm_in_turns(captured, rounds)
        cold = time_in_turns(runs, device, rounds)
    rows = [make_row(part, name, warm[name].divide(CALLS), errors[name]) for name in runs]
    rows = [{**row, "graph": True} for row in rows]
    return rows + [make_row(part, name, cold[name], errors[name]) for name in runs]


def format_line(rows: list[dict]) -> str:
    times = {(row["variant"], row.get("graph", False)): row["ms"] for row in rows}
    texts = []
    for graph, word in ((True, "warm"), (False, "cold")):
        ours, cublas = times.get(("ours", graph)), times.get(("cublas", graph))
        if ours and cublas:
            texts.append(f"{word} {1e3 * ours:.1f} us, cublas {cublas / ours:.2f}")
    return "  " + "; ".join(texts)


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.products", __doc__, rounds=15)
    add_words(parser, "--layouts", (*LAYOUTS, MIXED), LAYOUTS)
    add_words(parser, "--precisions", PRECISIONS + NARROW, PRECISIONS)
    add_words(parser, "--shapes", SHAPES)
    add_words(parser, "--variants", VARIANTS)
    add_sizes(parser)
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_product_cases(options.layouts, options.precisions, options.shapes, options.sizes),
        lambda case: options.variants,
        functools.partial(measure_product, "cuda", options.rounds, options.variants),
        format_line,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
