"""torch.func.vmap: a loop over the slices, also with gradients; in training PyTorch's ops."""

import pytest
import torch
from norm_functions import FUNCTIONS, N, call, make_leaves, make_statistics

from cutlass_fused import functional

WEIGHT, BIAS = torch.randn(N, N), torch.randn(N)


def run_norm(function, training):
    leaves = {name: t.detach() for name, t in make_leaves(function, torch.float32).items()}
    weight = {"weight": WEIGHT} if function.has_product else {}
    statistics = (None, None) if training else make_statistics(torch.float32)

    def run(x):
        return call(function.ours, leaves | weight | {"x": x}, statistics, training)

    return run


FORWARD = {
    "linear": lambda x: functional.linear(x, WEIGHT, BIAS),
    "linear_scale_leaky_relu": lambda x: functional.linear_scale_leaky_relu(x, WEIGHT, BIAS, BIAS),
    "softmax": functional.softmax,
}
TRAIN = {}
for function in FUNCTIONS:
    FORWARD[str(function)] = run_norm(function, training=False)
    TRAIN[str(function)] = run_norm(function, training=True)


def draw(**options):
    return torch.randn(3, 5, N, **options)


@pytest.mark.parametrize("function", FORWARD.values(), ids=FORWARD)
def test_without_gradients_it_is_a_loop(function):
    x = draw()
    expected = torch.stack([function(x_slice) for x_slice in x])
    assert torch.equal(torch.func.vmap(function)(x), expected)
    with torch.no_grad():
        assert torch.equal(torch.func.vmap(function)(x.requires_grad_()), expected)


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("function", FORWARD.values(), ids=FORWARD)
def test_gradients_are_those_of_a_loop(function):
    """PyTorch hides from the slices that they want one."""
    x = draw(requires_grad=True)
    vmap, grad = torch.func.vmap, torch.func.grad
    (expected,) = torch.autograd.grad(sum(function(x_slice).square().sum() for x_slice in x), x)
    for run in (vmap(function), lambda x: vmap(vmap(function))(x[None])):
        torch.testing.assert_close(torch.autograd.grad(run(x).square().sum(), x), (expected,))
    for run in (
        grad(lambda x: vmap(function)(x).square().sum()),
        vmap(grad(lambda x: function(x).square().sum())),
    ):
        torch.testing.assert_close(run(x.detach()), expected)


@pytest.mark.parametrize("function", TRAIN.values(), ids=TRAIN)
def test_training_has_the_statistics_of_each_slice(function):
    x = draw(requires_grad=True)
    expected = torch.stack([function(x_slice) for x_slice in x])
    torch.testing.assert_close(torch.func.vmap(function)(x), expected)
    (grads,) = torch.autograd.grad(expected.square().sum(), x)
    (found,) = torch.autograd.grad(torch.func.vmap(function)(x).square().sum(), x)
    torch.testing.assert_close(found, grads, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", FORWARD.values(), ids=FORWARD)
def test_gradient_functions_without_vmap(function):
    x = draw()[0]
    ours = torch.func.grad(lambda x: function(x).square().sum())(x)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(function(x).square().sum(), x)
    assert torch.equal(ours, expected)


@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_compiled_gradients():
    compiled = torch.compile(torch.func.vmap(functional.softmax), backend="aot_eager")
    x = draw()
    assert torch.equal(compiled(x), functional.softmax(x))
    grads = []
    for run in (compiled, functional.softmax):
        leaf = x.clone().requires_grad_()
        grads += torch.autograd.grad(run(leaf).square().sum(), leaf)
    torch.testing.assert_close(*grads)
