"""python -m bench.memory_bound --out DIR: softmax and batch norm alone, into DIR/memory_bound.json.

Softmax over rows and batch norm in training, at 12 shapes, in fp32 and bf16, interleaved, on cold
caches, under no_grad, after one check of each variant against float64. The rows have K = 0.

`--passes backward` times their backward passes alone, of a call that was made before: the gradients
of x and of the parameters, in rows with "grad".

"gbps" counts the same bytes for all variants: for softmax one read and one write of the tensor, for
batch norm two reads, since the statistics come before the first result, and one write; backward,
for softmax two reads and one write, for batch norm four reads and one write. Over the
time this can be more than the memory's bandwidth where the second read finds the tensor in the L2
cache, or on chip. A copy of the tensor, one read and one write, is timed in the same rounds: the
variant "copy", the bandwidth that the others are to reach.
"""

import contextlib
import functools
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from cutlass_fused import comparison
from cutlass_fused.timing import Timing, time_in_turns

from .cases.cases import Case, Problem, Run
from .cases.layers import (
    LAYERS,
    SHAPES,
    Backward,
    BackwardCase,
    build_backward,
    build_layer_problem,
    count_bytes,
    draw_gradient,
    is_backward,
    measure_backward_errors,
    measure_layer_errors,
)
from .cases.peers import VARIANTS
from .measure.checking import check_error, prepare_each
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.run_cases import run_cases
from .measure.timing import make_row

SUITE = "memory_bound"
PRECISIONS = ("ieee", "bf16")
LAYER_VARIANTS = ("ours", "eager", "compile", "max_autotune")
BACKWARD_VARIANTS = ("ours", "eager", "compile")  # max-autotune finds nothing else there
PASSES = ("forward", "backward")
COPY = "copy"  # clones the tensor

# A few times what one rounding of the result, or fp32 sums over the longest rows, come to.
LARGEST_ERRORS = {"ieee": 3e-6, "bf16": 4e-3}
# Gradients are differences: of softmax's terms and their sum, and, of batch norm, of three.
BACKWARD_FACTOR = 4

# Large tensors need fewer rounds: a launch is nothing there, and the suite is to end soon.
FEWEST_ROUNDS = 10
BYTES_IN_ALL_ROUNDS = 2**38


def list_layer_cases(
    models: list[str], precisions: list[str], passes: Sequence[str] = ("forward",)
) -> list[Case]:
    return [
        (Case if which == "forward" else BackwardCase)(
            name, LAYERS[name].mode, precision, *shape, 0
        )
        for which in passes
        for name in models
        for precision in precisions
        for shape in SHAPES
    ]


def list_layer_variants(variants: list[str], case: Case) -> list[str]:
    allowed = BACKWARD_VARIANTS if isinstance(case, BackwardCase) else LAYER_VARIANTS
    return [name for name in variants if name in allowed]


def choose_rounds(most: int, problem: Problem) -> int:
    rounds = BYTES_IN_ALL_ROUNDS // count_bytes(problem)
    return min(most, max(rounds, FEWEST_ROUNDS))


def prepare(problem: Problem, name: str) -> tuple[Run, float]:
    """What to run and its error, after one call that is checked, with its running statistics."""
    own = problem.fork()
    run = VARIANTS[name](own)
    limit = LARGEST_ERRORS[problem.case.precision]
    errors = measure_layer_errors(own, run)
    for key, error in errors.items():
        check_error(f"{name}: {key}", error, limit)
    return run, errors["y"]


def prepare_backward(problem: Problem, grad: Tensor, name: str) -> tuple[Backward, float]:
    """What to run and the largest error of its gradients, checked."""
    own = problem.fork()
    run = build_backward(own, VARIANTS[name](own), grad)
    errors = measure_backward_errors(own, run, grad)
    limit = BACKWARD_FACTOR * LARGEST_ERRORS[problem.case.precision]
    for key, error in errors.items():
        check_error(f"{name}: the gradient of {key}", error, limit)
    return run, max(errors.values())


@contextlib.contextmanager
def prepare_passes(problem: Problem):
    """(name) -> what to run and its error, for the pass that is timed."""
    if not is_backward(problem):
        with torch.no_grad():
            yield functools.partial(prepare, problem)
        return
    problem.x.requires_grad_()
    # The same backward pass runs many times: none may write to what the forward pass has left.
    with torch._functorch.config.patch(donated_buffer=False):
        yield functools.partial(prepare_backward, problem, draw_gradient(problem))


def count_gbps(size: int, timing: Timing) -> float:
    return 1e-6 * size / timing.median


def measure_layer(device: str, rounds: int, variants: list[str], case: Case) -> list[dict]:
    """The rows of one case and of the copy beside it, all from one run."""
    torch.compiler.reset()
    problem = build_layer_problem(case, device)
    variants = list_layer_variants(variants, case)
    with prepare_passes(problem) as prepare_one, comparison.set_matmul_precision(problem.setting):
        runs, errors = prepare_each(variants, prepare_one)
        copied = problem.x.detach()
        timings = time_in_turns(
            {**runs, COPY: copied.clone}, device, choose_rounds(rounds, problem)
        )
    part = case.describe(SUITE)
    moved = dict.fromkeys(runs, count_bytes(problem))
    moved[COPY] = 2 * problem.x.numel() * problem.x.element_size()
    errors[COPY] = 0.0
    return [
        make_row(part, name, timings[name], errors[name], gbps=count_gbps(size, timings[name]))
        for name, size in moved.items()
    ]


def format_table(rows: list[dict]) -> str:
    """Times, bandwidths, errors, and each variant's time divided by ours."""
    ours = next((row["ms"] for row in rows if row["variant"] == "ours"), None)
    lines = []
    for row in rows:
        ratio = "" if ours is None else f"{row['ms'] / ours:8.3f} /ours"
        lines.append(
            f"  {row['variant']:13}{row['ms']:11.4f} ms {row['gbps']:9.0f} GB/s"
            f"{row['rel_err']:11.2e}{ratio}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.memory_bound", __doc__, rounds=100)
    add_words(parser, "--models", LAYERS)
    add_words(parser, "--precisions", PRECISIONS)
    add_words(parser, "--variants", LAYER_VARIANTS)
    add_words(parser, "--passes", PASSES, PASSES[:1])
    options = parser.parse_args(arguments)
    run_cases(
        open_results(SUITE, options),
        options,
        list_layer_cases(options.models, options.precisions, options.passes),
        lambda case: [*list_layer_variants(options.variants, case), COPY],
        functools.partial(measure_layer, "cuda", options.rounds, options.variants),
        format_table,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
