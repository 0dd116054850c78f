"""Functions behind products, forward and backward, beside PyTorch's own ops."""

import pytest
import torch
import traced
from judge_epilogues import PRECISIONS, assert_as_good, judge, run_both_ways
from program_cases import CASES

from cutlass_fused.programs.epilogue import epilogue

pytestmark = pytest.mark.gpu

# M, N, K
SHAPES = ((133, 264, 96), (7, 33, 520), (1024, 512, 256))


def make_runs(case, precision):
    names = list(case.operands)
    made = epilogue(case.function)

    def ours(x, weight, *operands):
        options = {"precision": precision} if precision in ("ieee", "tf32") else {}
        return made(x, weight, **dict(zip(names, operands, strict=True)), **options)

    def eager(x, weight, *operands):
        return case.function(x @ weight.t(), **dict(zip(names, operands, strict=True)))

    return ours, eager


# Steps at which an error of the product decides.
JUMPS = ("quantized", "where_between", "hardshrink", "threshold", "masked")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in JUMPS])
def test_values(name, precision):
    case = CASES[name]
    ours, eager = make_runs(case, precision)
    for shape in SHAPES:
        tensors = traced.make_leaves(case, shape, PRECISIONS[precision])
        # torch.prelu takes no matrix of slopes.
        judge(ours, eager, tensors, precision, eager if name != "prelu" else None)


@pytest.mark.parametrize("name", JUMPS)
def test_jumps(name):
    """All but few elements."""
    case = CASES[name]
    ours, eager = make_runs(case, "ieee")
    tensors = traced.make_leaves(case, SHAPES[0], torch.float32)
    close = torch.isclose(ours(*tensors), eager(*tensors), rtol=1e-4, atol=1e-4)
    assert close.float().mean() > 0.99


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", ["geglu", "pre_activation", "norm_relu"])
def test_compiled(name, mode):
    torch._dynamo.reset()
    case = CASES[name]
    ours, _ = make_runs(case, "ieee")
    tensors = traced.make_leaves(case, SHAPES[0], torch.float32)
    expected, expected_grads = run_both_ways(tensors, ours)
    compiled = torch.compile(ours, fullgraph=True, mode=mode)
    for _ in range(3):  # the third is a replay
        torch.compiler.cudagraph_mark_step_begin()
        found, grads = run_both_ways(tensors, compiled)
        for one, other in zip((*found, *grads), (*expected, *expected_grads), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_captured():
    """A step, forward and backward, behind a first one."""
    case = CASES["geglu"]
    ours, _ = make_runs(case, "ieee")
    tensors = traced.make_leaves(case, SHAPES[2], torch.float32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run_both_ways(tensors, ours)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, grads = run_both_ways(tensors, ours)
    with torch.no_grad():
        tensors[0].normal_()
    graph.replay()
    expected, expected_grads = run_both_ways(tensors, ours)
    for one, other in zip((*found, *grads), (*expected, *expected_grads), strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives():
    case = CASES["shifted_softplus"]
    ours, eager = make_runs(case, "ieee")

    def force(run, tensors):
        energy = run(*tensors).sum()
        (first,) = torch.autograd.grad(energy, tensors[0], create_graph=True)
        return torch.autograd.grad(first.square().sum(), tensors)

    tensors = traced.make_leaves(case, SHAPES[0], torch.float32)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    for parts in zip(force(ours, tensors), force(eager, tensors), force(eager, wide), strict=True):
        assert_as_good(*parts, "second derivative")


def test_no_copy_to_the_host():
    case = CASES["rbf"]  # with a scalar
    ours, _ = make_runs(case, "ieee")
    tensors = traced.make_leaves(case, SHAPES[0], torch.float32)
    run_both_ways(tensors, ours)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run_both_ways(tensors, ours)
    finally:
        torch.cuda.set_sync_debug_mode("default")
