"""Measures one case: the check, the memory, the GPU's time and the host's."""

from collections.abc import Sequence

import torch

from ..steps.cases import StepProblem
from ..steps.measure import FEWEST_ROUNDS, FLOPS_IN_ALL_ROUNDS, measure_problem
from . import variants
from .cases import RealCase, build_problem, list_variants

SUITE = "end_to_end"
# Two for each product that a pass computes: its own, and those of the gradients.
FLOPS = {"inference": 2, "step": 6}

Failures = dict[str, type[Exception]]


def count_elements(problem: StepProblem) -> int:
    """What the products of a row multiply."""
    modules = problem.plain.modules()
    return sum(m.weight.numel() for m in modules if isinstance(m, torch.nn.Linear))


def choose_rounds(most: int, problem: StepProblem) -> int:
    """Large cases need fewer."""
    flops = FLOPS[problem.case.which] * problem.case.m * count_elements(problem)
    return min(most, max(FLOPS_IN_ALL_ROUNDS // flops, FEWEST_ROUNDS))


def measure(
    device: str, rounds: int, names: Sequence[str], failures: Failures, case: RealCase
) -> list[dict]:
    """The rows of one case, all from one run."""
    problem = build_problem(case, device)
    with torch.set_grad_enabled(case.takes_gradients):
        return measure_problem(
            SUITE,
            problem,
            list_variants(names, case),
            device,
            choose_rounds(rounds, problem),
            failures,
            weights=["new" if case.which == "step" else "kept"],
            build=variants.build,
        )
