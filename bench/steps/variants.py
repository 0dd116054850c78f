"""The variants of a step of training: ours, and what else computes the same gradients."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from .cases import StepProblem

Step = Callable[[], Sequence[Tensor]]
Forward = Callable[[Tensor], Tensor]


def take_plain(problem: StepProblem) -> torch.nn.Module:
    return problem.plain


def take_ours(problem: StepProblem) -> torch.nn.Module:
    return problem.model.fuse(problem.plain, problem.setting)


Take = Callable[[StepProblem], torch.nn.Module]


def build_forward(take: Take, problem: StepProblem) -> Forward:
    return functools.partial(problem.model.compute, take(problem))


def build_compiled(take: Take, problem: StepProblem, **options) -> Forward:
    """Where a gradient is taken inside, all of it is compiled: a compiled model alone could not be
    differentiated twice. `options` go to torch.compile."""
    compute = problem.model.compute
    if not problem.model.differentiates_inside:
        return functools.partial(compute, torch.compile(take(problem), dynamic=False, **options))
    compute = torch.compile(compute, dynamic=False, fullgraph=True, **options)
    return functools.partial(compute, take(problem))


def build_with_graphs(take: Take, problem: StepProblem, **options) -> Forward:
    forward = build_compiled(take, problem, mode="reduce-overhead", **options)

    def run(x: Tensor) -> Tensor:
        # What the step before gave may be overwritten.
        torch.compiler.cudagraph_mark_step_begin()
        return forward(x)

    return run


FORWARDS: dict[str, Callable[[StepProblem], Forward]] = {
    "ours": functools.partial(build_forward, take_ours),
    "ours_compile": functools.partial(build_compiled, take_ours),
    "ours_compile_graphs": functools.partial(build_with_graphs, take_ours),
    # Captured as a whole by who prepares it.
    "ours_graphs": functools.partial(build_forward, take_ours),
    "eager": functools.partial(build_forward, take_plain),
    "compile": functools.partial(build_compiled, take_plain),
    "compile_graphs": functools.partial(build_with_graphs, take_plain),
}
PRODUCTS = "bare_products"
CAPTURED = "ours_graphs"


def build_step(
    variant: str,
    problem: StepProblem,
    names: Sequence[str],
    forwards: Mapping[str, Callable[[StepProblem], Forward]] | None = None,
) -> Step:
    """A step without its loss, whose gradient is given. It gives the gradients of these names, and
    what is computed if there are none. The problem is this variant's own. `forwards` are those of
    the variants, FORWARDS by default."""
    if variant == PRODUCTS:
        return build_products(problem)
    forwards = FORWARDS if forwards is None else forwards
    forward, asked = forwards[variant](problem), problem.list_asked()
    x, grad, inputs = problem.x, problem.grad, [asked[name] for name in names]

    def step() -> Sequence[Tensor]:
        y = forward(x)
        return torch.autograd.grad(y, inputs, grad) if inputs else (y.detach(),)

    return step


def build_products(problem: StepProblem) -> Step:
    """The products that a layer cannot do without, y, that of x and that of the weight."""
    x, grad, weight = (t.detach() for t in (problem.x, problem.grad, problem.plain.gemm.weight))
    # As it was drawn: a layer's tail stands between, and sums of so large ones may leave fp16.
    grad = grad / problem.loss_scale
    pairs = (x, weight.T), (grad, weight), (grad.T, x)
    results = [a.new_empty(len(a), b.shape[1]) for a, b in pairs]

    def step() -> Sequence[Tensor]:
        for (a, b), out in zip(pairs, results, strict=True):
            torch.mm(a, b, out=out)
        return results

    return step


@contextlib.contextmanager
def trace_gradients(problem: StepProblem):
    """torch.compile takes torch.autograd.grad into its graphs, where it knows how to."""
    with contextlib.ExitStack() as stack:
        if problem.model.differentiates_inside:
            config = torch._dynamo.config
            if hasattr(config, "trace_autograd_ops"):
                stack.enter_context(config.patch(trace_autograd_ops=True))
        yield
