"""Numbers that change between the calls of what torch.compile has compiled."""

import shutil

import numpy as np
import pytest
import torch
from norm_functions import FUSED, N, call, make_leaves
from plain import PlainLinearScaleLeakyReLU, run_parts
from torch._dynamo.testing import CompileCounterWithBackend

from cutlass_fused import functional, nn

IN, OUT = 12, 20
VALUES = (2.0, -3.0, 0.25, 7.5, 0.5)  # more than torch.compile would compile for
with_and_without_grad = pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
BACKENDS = [
    "eager",
    "aot_eager",
    pytest.param(
        "inductor",
        marks=pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a compiler"),
    ),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compile_and_count(function, backend="aot_eager"):
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=True), counter


def count_compilations(module, backend, change):
    compiled, counter = compile_and_count(module, backend)
    x = torch.randn(5, IN)
    for value in VALUES:
        change(module, value)
        torch.testing.assert_close(compiled(x), module(x))
    return counter.frame_count


def change_multiplier(module, value):
    module.multiplier = value


def change_slope(module, value):
    module.negative_slope = value


def change_both(module, value):
    module.multiplier, module.negative_slope = value, value / 8


def change_plain(module, value):
    module.multiplier = value


@pytest.mark.parametrize("change", [change_multiplier, change_slope, change_both])
@pytest.mark.parametrize("backend", BACKENDS)
@with_and_without_grad
def test_a_module_is_compiled_twice(change, backend, grad):
    """For the first value, and for all that follow; so is the plain model."""
    with torch.set_grad_enabled(grad):
        module = nn.LinearScaleLeakyReLU(IN, OUT, 1.0, 0.1)
        assert count_compilations(module, backend, change) == 2
        torch._dynamo.reset()
        plain = PlainLinearScaleLeakyReLU(IN, OUT, 1.0, 0.1)
        assert count_compilations(plain, backend, change_plain) == 2


def test_a_number_that_stays_is_an_argument_of_the_op():
    """A tensor in its place would be one kernel more."""
    graphs = []

    def record(graph, inputs):
        graphs.append(graph)
        return graph

    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)
    with torch.no_grad():
        torch.compile(module, backend=record, fullgraph=True)(torch.randn(5, IN))
    (node,) = (node for node in graphs[0].graph.nodes if node.op == "call_function")
    assert node.target is torch.ops.cutlass_fused.linear_scale_leaky_relu.default
    assert node.args[3:6] == (None, 2.0, 0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_gradients_and_dtypes(dtype):
    module = nn.LinearScaleLeakyReLU(IN, OUT, 1.0, 0.1, dtype=dtype)
    compiled, counter = compile_and_count(module)
    narrow = dict.fromkeys(("rtol", "atol"), 2e-2 if dtype == torch.bfloat16 else 1e-4)
    for value in VALUES:
        change_both(module, value)
        x = torch.randn(5, IN, dtype=dtype, requires_grad=True)
        leaves, results = [x, *module.parameters()], []
        for run in (compiled, module):
            y = run(x)
            results.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
        torch.testing.assert_close(*results, **narrow)
        torch.testing.assert_close(results[0][0], run_parts(module, x), **narrow)
    assert counter.frame_count == 2


def test_autocast():
    module = nn.LinearScaleLeakyReLU(IN, OUT, 1.0, 0.1)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    compiled, counter = compile_and_count(forward)
    for value in VALUES:
        change_both(module, value)
        x = torch.randn(5, IN)
        torch.testing.assert_close(compiled(x), forward(x), rtol=2e-2, atol=2e-2)
    assert compiled(x).dtype == torch.bfloat16
    assert counter.frame_count == 2


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(-2.5), np.int64(3)], ids=repr)
def test_numbers_of_numpy(number):
    """To torch.compile they are arrays."""
    x, weight = torch.randn(5, IN), torch.randn(OUT, IN)
    mean, var = torch.zeros(OUT), torch.ones(OUT)

    def run(x):
        y = functional.linear_scale_leaky_relu(x, weight, None, number, 0.1)
        z = functional.linear_scale_leaky_relu(x, weight, None, 2.0, number)
        return y, z, functional.linear_scale_batch_norm(x, weight, None, number, mean, var)

    compiled, _ = compile_and_count(run)
    torch.testing.assert_close(compiled(x), run(x))


@with_and_without_grad
@pytest.mark.parametrize("scale", [torch.tensor([2.0]), torch.rand(OUT)], ids=["(1,)", "(N,)"])
def test_a_slope_beside_a_scale(scale, grad):
    x, weight = torch.randn(5, IN), torch.randn(OUT, IN)
    scale = scale.clone().requires_grad_(grad)
    compiled, counter = compile_and_count(functional.linear_scale_leaky_relu)
    for slope in VALUES:
        expected = functional.linear_scale_leaky_relu(x, weight, None, scale, slope)
        torch.testing.assert_close(compiled(x, weight, None, scale, slope), expected)
    assert counter.frame_count == 2


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_a_scale_of_a_batch_norm(function, training):
    leaves = make_leaves(function, torch.float32)
    statistics = (torch.zeros(N), torch.ones(N))

    def run(scale):
        moved = [tensor.clone() for tensor in statistics]
        return call(function.ours, leaves | {"scale": scale}, moved, training)

    compiled, counter = compile_and_count(run)
    for scale in VALUES:
        torch.testing.assert_close(compiled(scale), run(scale))
    assert counter.frame_count == 2
