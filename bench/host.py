"""python -m bench.host --out DIR: what a call costs on the host, into DIR/host.json.

The problem is so small that the GPU is done first: what is left is the time that Python, PyTorch's
dispatcher and the launches take. "ms" is milliseconds of host time per call, under no_grad.

With --switch: what PyTorch's own products cost under `cutlass_fused.fp32_matmul`, into
DIR/switch.json.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cutlass_fused import comparison
from cutlass_fused.timing import Timing

from .cases.cases import Case, Problem, Run, build_problem, list_cases
from .cases.peers import build_compiled, build_eager
from .measure import switch
from .measure.checking import measure_error
from .measure.machine import open_results
from .measure.options import add_words, build_parser
from .measure.results import MODES
from .measure.run_cases import run_cases
from .measure.timing import make_row, time_host

SUITE = "host"
SIZE = 64  # M, N and K
# 39 is 33 at another shape.
MODELS = ("12", "33", "84")


class RecordOp(TorchDispatchMode):
    """Keeps the last call of an op of ours."""

    def __torch_dispatch__(self, op, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if op.namespace == "cutlass_fused":
            self.call = functools.partial(op, *arguments, **keywords)
        return op(*arguments, **keywords)


def build_module(problem: Problem) -> Run:
    """Ours follows PyTorch's own precision, as by default."""
    return functools.partial(problem.model.fuse(problem.plain, None), problem.x)


def build_raw_op(problem: Problem) -> Run:
    """The op under our module, with the arguments that it gets."""
    before = {name: buffer.clone() for name, buffer in problem.plain.named_buffers()}
    with RecordOp() as record:
        build_module(problem)()
    for name, buffer in problem.plain.named_buffers():
        buffer.copy_(before[name])
    return record.call


def build_linear(problem: Problem) -> Run:
    """The model without its tail."""
    return functools.partial(problem.plain.gemm, problem.x)


class Call(NamedTuple):
    label: str
    # The variant of its row. None: it is only printed, to tell where the module's time goes, for
    # the rows have no name for it.
    variant: str | None
    build: Callable[[Problem], Run]


CALLS = (
    Call("ours: module", "ours", build_module),
    Call("ours: raw op", None, build_raw_op),
    Call("eager", "eager", build_eager),
    Call("torch.compile", "compile", build_compiled),
    Call("eager: one Linear", "bare_product", build_linear),
)


def prepare_calls(
    problem: Problem, calls: Sequence[Call] = CALLS
) -> tuple[dict[str, Run], dict[str, float]]:
    """What to run, and its error, for each label; raises WrongResult."""
    precision = problem.case.precision
    truth = comparison.compute_truth(problem.plain, problem.x)
    product = comparison.compute_truth(problem.plain.gemm, problem.x)
    runs, errors = {}, {}
    for label, variant, build in calls:
        own = problem.fork()
        run = build(own)
        module, expected = (
            (own.plain.gemm, product) if variant == "bare_product" else (own.plain, truth)
        )
        errors[label] = measure_error(
            label, lambda run=run: take_y(run()), module, expected, precision
        )
        runs[label] = run
    return runs, errors


def take_y(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Ops of training give more behind y."""
    return result[0] if isinstance(result, tuple) else result


def format_table(timings: dict[str, Timing]) -> str:
    """Microseconds, and each call's time divided by that of our module."""
    ours = timings[CALLS[0].label].median
    titles = ("us", "min", "max", "/ours")
    lines = [f"  {'call':19}" + "".join(f"{title:>9}" for title in titles)]
    for label, timing in timings.items():
        cells = [f"{1e3 * milliseconds:.2f}" for milliseconds in timing]
        cells.append(f"{timing.median / ours:.3f}")
        lines.append(f"  {label:19}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def measure_host(device: str, rounds: int, case: Case) -> list[dict]:
    """The rows of one case; all calls are printed."""
    torch.compiler.reset()
    problem = build_problem(case, device)
    with torch.no_grad(), comparison.set_matmul_precision(problem.setting):
        runs, errors = prepare_calls(problem)
        timings = time_host(runs, device, rounds)
    print(format_table(timings), flush=True)
    part = case.describe(SUITE)
    return [
        make_row(part, call.variant, timings[call.label], errors[call.label])
        for call in CALLS
        if call.variant is not None
    ]


def list_host_cases(
    models: Sequence[str], precisions: Sequence[str], modes: Sequence[str]
) -> list[Case]:
    small = {"m": SIZE, "n": SIZE, "k": SIZE}
    cases = list_cases(models, precisions, modes)
    # Model 12 has no statistics: both modes make the same calls.
    return [case._replace(**small) for case in cases if (case.model, case.mode) != ("12", "train")]


def run_switch(options: argparse.Namespace) -> int:
    file = open_results(switch.SUITE, options)
    cases = switch.list_switch_cases(options.precisions)
    never = switch.measure_never(cases, "cuda", options.rounds)
    measure = functools.partial(switch.measure_switch, never, "cuda", options.rounds)
    run_cases(file, options, cases, lambda case: switch.VARIANTS, measure)
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = build_parser("bench.host", __doc__, rounds=200)
    add_words(parser, "--models", MODELS)
    add_words(parser, "--modes", MODES)
    add_words(parser, "--precisions", comparison.PRECISIONS)
    parser.add_argument("--switch", action="store_true", help="PyTorch's products instead")
    options = parser.parse_args(arguments)
    if options.switch:
        return run_switch(options)
    recorded = [call.variant for call in CALLS if call.variant is not None]
    run_cases(
        open_results(SUITE, options),
        options,
        list_host_cases(options.models, options.precisions, options.modes),
        lambda case: recorded,
        functools.partial(measure_host, "cuda", options.rounds),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
