"""What runs a case: ours through `fuse` and through torch.compile, and PyTorch's own ways."""

import functools

import cutlass_fused

from ..steps.cases import StepProblem
from ..steps.variants import (
    CAPTURED,
    FORWARDS,
    Forward,
    build_compiled,
    build_step,
    build_with_graphs,
    take_ours,
    take_plain,
)
from .cases import BACKEND


def take_prepared(problem: StepProblem):
    """Ours, for a graph. In inference what fp32 weights are split into is made before the capture,
    as a server does; a step has new weights each time."""
    ours = take_ours(problem)
    return cutlass_fused.prepare(ours) if problem.case.which == "inference" else ours


def build_to_capture(problem: StepProblem) -> Forward:
    return functools.partial(problem.model.compute, take_prepared(problem))


FORWARDS = FORWARDS | {
    # The plain model: our pass finds in its graphs what `fuse` finds in modules.
    "ours_compile": functools.partial(build_compiled, take_plain, backend=BACKEND),
    "ours_compile_graphs": functools.partial(build_with_graphs, take_plain, backend=BACKEND),
    CAPTURED: build_to_capture,
}
build = functools.partial(build_step, forwards=FORWARDS)
