"""Measures the steps of one case: the check, the memory, and two times under two weights."""

import contextlib
import functools
import gc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from cutlass_fused import comparison
from cutlass_fused.timing import time_in_turns

from ..measure.checking import prepare_each
from ..measure.graphs import Graphs
from ..measure.timing import make_row, time_waiting
from . import checking
from .cases import StepCase, StepProblem, build_step_problem, list_planned
from .variants import CAPTURED, PRODUCTS, Step, build_step, trace_gradients

SUITE = "training"
WEIGHTS = "new", "kept"
# Large steps need fewer rounds.
FEWEST_ROUNDS = 5
FLOPS_IN_ALL_ROUNDS = 2**44
WARM_UP_ROUNDS = 3
# By the host's clock a round has several calls of each variant.
ROUNDS_PER_WAITING_ROUND = 3
# A step in eager mode takes the host some milliseconds.
MOST_WAIT_SECONDS = 2e-2


# (variant, problem, names=) -> a step
BuildStep = Callable[..., Step]


class Prepared(NamedTuple):
    step: Step
    peak: dict[str, float]  # what its row says of memory

    def __call__(self):
        return self.step()


def choose_rounds(most: int, case: StepCase) -> int:
    rounds = FLOPS_IN_ALL_ROUNDS // (6 * case.m * case.n * case.k)
    return min(most, max(rounds, FEWEST_ROUNDS))


def count_allocated(device: str) -> int:
    """The bytes of tensors; the peak begins anew."""
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def describe_peak(before: int, device: str) -> dict[str, float]:
    if device != "cuda":
        return {}
    # A compiler may give back, meanwhile, more than the step takes.
    return {"peak_mib": max(torch.cuda.max_memory_allocated() - before, 0) / 2**20}


class Preparation:
    """Makes the steps of a case."""

    def __init__(
        self, problem: StepProblem, device: str, graphs: Graphs | None, build: BuildStep
    ) -> None:
        self.problem, self.device, self.graphs = problem, device, graphs
        self.truth = checking.compute_gradients(problem)
        names = [name for name in self.truth if name != "itself"]
        self.build = functools.partial(build, names=names)
        found = self.build("eager", problem.fork())()
        self.expected = checking.expect_errors(problem, found, self.truth)

    def prepare(self, name: str) -> tuple[Prepared, float]:
        """A step that has been run and checked, and its error."""
        gc.collect()  # what cycles hold of the variants before would count as memory
        before = count_allocated(self.device)
        step = self.build(name, self.problem.fork())
        if name == CAPTURED:
            # All of its memory is taken by the capture, and replays take none.
            step = self.graphs.capture(step)
        else:
            step()  # compilers try kernels out on tensors of their own
            count_allocated(self.device)
        for _ in range(2):  # torch.compile captures a graph in the second of its calls
            found = step()
            del found
        peak = describe_peak(before, self.device)
        found = [gradient.clone() for gradient in step()]
        truth = checking.compute_products(self.problem) if name == PRODUCTS else self.truth
        error = checking.find_worst(self.problem, name, found, truth, self.expected)
        return Prepared(step, peak), error


def order_variants(names: Sequence[str]) -> list[str]:
    """The captured one last: where torch.compile captures graphs of its own it frees the workspaces
    that cuBLAS has in PyTorch, and a graph that was captured before would go on writing to them."""
    return sorted(names, key=lambda name: name == CAPTURED)


def change_weights(problem: StepProblem) -> None:
    """A write that PyTorch counts, and that leaves them as they are: times of a step do not depend
    on how far training has come, and its check holds for all of them."""
    with torch.no_grad():
        torch._foreach_mul_(list(problem.plain.parameters()), 1.0)


def measure_step(
    device: str,
    rounds: int,
    variants: Sequence[str],
    failures: dict[str, type[Exception]],
    case: StepCase,
) -> list[dict]:
    """The rows of one case, under a new and a kept weight, all from one run."""
    problem, names = build_step_problem(case, device), list_planned(variants, case)
    return measure_problem(SUITE, problem, names, device, choose_rounds(rounds, case), failures)


def measure_problem(
    suite: str,
    problem: StepProblem,
    names: Sequence[str],
    device: str,
    rounds: int,
    failures: dict[str, type[Exception]],
    weights: Sequence[str] = WEIGHTS,
    build: BuildStep | None = None,
) -> list[dict]:
    """The rows of its case. `build` is build_step by default."""
    torch.compiler.reset()
    before_each = {"new": functools.partial(change_weights, problem), "kept": lambda: None}
    rows = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(comparison.set_matmul_precision(problem.setting))
        stack.enter_context(trace_gradients(problem))
        graphs = stack.enter_context(Graphs()) if CAPTURED in names else None
        preparation = Preparation(problem, device, graphs, build or build_step)
        steps, errors = prepare_each(order_variants(names), preparation.prepare, failures)
        waiting_rounds = -(-rounds // ROUNDS_PER_WAITING_ROUND)
        for weight in weights if steps else ():
            before = before_each[weight]
            timings = time_in_turns(
                steps, device, rounds, WARM_UP_ROUNDS, before=before, most_wait=MOST_WAIT_SECONDS
            )
            walls = time_waiting(steps, device, waiting_rounds, before)
            part = problem.case.describe(suite, weight)
            for name in (name for name in names if name in steps):
                more = {"wall_ms": walls[name].median, **steps[name].peak}
                rows.append(make_row(part, name, timings[name], errors[name], **more))
    return rows
