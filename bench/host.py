"""python -m bench.host --out DIR: what a call costs on the host, into DIR/host.json.

The problem is so small that the GPU is done first: what is left is the time that Python, PyTorch's
dispatcher and the launches take. "ms" is milliseconds of host time per call, under no_grad.
"""

import functools
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import demo, functional
from cutlass_fused.timing import Timing

from .cases import Case, Problem, build_problem
from .machine import open_results
from .options import add_words, build_parser
from .peers import build_compiled, build_eager, compute_truth, measure_error
from .results import case_of
from .timing import make_row, time_host

SUITE = "host"
SIZE = 64  # M, N and K


class Call(NamedTuple):
    label: str
    # The variant of its row. None: it is only printed, to tell where the module's time goes, for
    # the rows have no name for it.
    variant: str | None
    run: Callable[[], Tensor]
    truth: Tensor


def build_calls(problem: Problem) -> list[Call]:
    """What is timed; the module and the functional follow PyTorch's precision, as by default."""
    plain, x = problem.plain, problem.x
    weight, bias = plain.gemm.weight, plain.gemm.bias
    multiplier, slope = demo.MULTIPLIER, demo.NEGATIVE_SLOPE
    module = problem.model.fuse(plain, None)
    function = functional.linear_scale_leaky_relu
    op = torch.ops.cutlass_fused.linear_scale_leaky_relu.default

    call_function = functools.partial(function, x, weight, bias, multiplier, slope)
    call_op = functools.partial(op, x, weight, bias, None, multiplier, slope, problem.setting)
    call_linear = functools.partial(plain.gemm, x)
    y, z = compute_truth(plain, x), compute_truth(plain.gemm, x)
    return [
        Call("ours: module", "ours", functools.partial(module, x), y),
        Call("ours: functional", None, call_function, y),
        Call("ours: raw op", None, call_op, y),
        Call("eager: three calls", "eager", build_eager(problem), y),
        Call("torch.compile", "compile", build_compiled(problem), y),
        # The model without its tail.
        Call("eager: one Linear", "bare_product", call_linear, z),
    ]


def format_table(calls: list[Call], timings: dict[str, Timing]) -> str:
    """Microseconds, and each call's time divided by that of our module."""
    ours = timings[calls[0].label].median
    titles = ("us", "min", "max", "/ours")
    lines = [f"  {'call':19}" + "".join(f"{title:>9}" for title in titles)]
    for call in calls:
        timing = timings[call.label]
        cells = [f"{1e3 * milliseconds:.2f}" for milliseconds in timing]
        cells.append(f"{timing.median / ours:.3f}")
        lines.append(f"  {call.label:19}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def measure_host(case: Case, device: str, rounds: int) -> list[dict]:
    """The rows of one case; all calls are printed."""
    torch.compiler.reset()
    problem = build_problem(case, device)
    with torch.no_grad(), demo.set_matmul_precision(problem.setting):
        calls = build_calls(problem)
        errors = {
            call.label: measure_error(call.label, call.run, call.truth, case.precision)
            for call in calls
        }
        timings = time_host({call.label: call.run for call in calls}, device, rounds)
    print(format_table(calls, timings), flush=True)
    part = case.describe(SUITE)
    return [
        make_row(part, call.variant, timings[call.label], errors[call.label])
        for call in calls
        if call.variant is not None
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.host", __doc__, rounds=200)
    add_words(parser, "--precisions", demo.PRECISIONS)
    options = parser.parse_args(arguments)
    file = open_results(SUITE, options)
    for precision in options.precisions:
        case = Case("12", "eval", precision, SIZE, SIZE, SIZE)
        print(case, flush=True)
        if file.list_variants(case_of(case.describe(SUITE))) and not options.again:
            print("  measured already")
            continue
        file.replace(measure_host(case, "cuda", options.rounds))
    print(f"{file.path}: {len(file.rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
