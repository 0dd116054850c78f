"""Measures one case: calls in interleaved rounds, or steps of training."""

import torch

from cutlass_fused import comparison
from cutlass_fused.timing import time_in_turns

from ..measure.timing import make_row
from ..steps.cases import StepModel, StepProblem
from ..steps.measure import choose_rounds as choose_rounds_of_steps
from ..steps.measure import measure_problem
from .cases import EpilogueCase, build_problem, list_variants
from .programs import Ours
from .variants import COPY, COPY_BYTES, prepare_variants

SUITE = "epilogues"

Failures = dict[str, type[Exception]]


def measure_calls(device: str, rounds: int, failures: Failures, case: EpilogueCase) -> list[dict]:
    """The rows of one case, all from one run on cold caches."""
    # Otherwise the cases before this one count towards the limit on recompilations, at which
    # torch.compile silently becomes eager.
    torch.compiler.reset()
    problem, part = build_problem(case, device), case.describe(SUITE)
    with torch.no_grad(), comparison.set_matmul_precision(case.setting):
        runs, errors = prepare_variants(problem, list_variants(case), failures)
        timings = time_in_turns(runs, device, rounds) if runs else {}
    rows = []
    for name, timing in timings.items():
        # It is read and written.
        more = {"gbps": 2e-6 * COPY_BYTES / timing.median} if name == COPY else {}
        rows.append(make_row(part, name, timing, errors[name], **more))
    return rows


def measure_step(device: str, rounds: int, failures: Failures, case: EpilogueCase) -> list[dict]:
    """A forward and a backward pass, with the gradients of x, the weight and all operands; the
    parameters are written to in front of each."""
    rounds = choose_rounds_of_steps(rounds, case)
    names, problem = list_variants(case), build_step_problem(case, device)
    return measure_problem(SUITE, problem, names, device, rounds, failures, weights=["new"])


def build_step_problem(case: EpilogueCase, device: str) -> StepProblem:
    _, plain, x = build_problem(case, device)
    model = StepModel(case.program, "layer", (), lambda k, n: plain, Ours, gives="x")
    with comparison.keep_seed(device):
        torch.manual_seed(1)
        grad = torch.randn(case.m, case.n, device=device).to(x.dtype)
    return StepProblem(case, model, plain.train(), x.requires_grad_(), grad)
