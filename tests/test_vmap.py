"""torch.func.vmap: a loop over the slices without gradients and training, else refused."""

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


@pytest.mark.parametrize("function", FORWARD.values(), ids=FORWARD)
def test_gradients_are_refused(function):
    """PyTorch hides from the slices that they want one; it would be lost."""
    x = draw(requires_grad=True)
    vmap, grad = torch.func.vmap, torch.func.grad
    for run in (
        vmap(function),
        lambda x: vmap(vmap(function))(x[None]),
        grad(lambda x: vmap(function)(x).sum()),
        vmap(grad(lambda x: function(x).sum())),
    ):
        with pytest.raises(RuntimeError, match="does not have vmap support"):
            run(x)


@pytest.mark.parametrize("function", TRAIN.values(), ids=TRAIN)
def test_training_is_refused(function):
    for x in (draw(), draw(requires_grad=True)):
        with pytest.raises(RuntimeError, match="[Bb]atching rule not implemented|vmap support"):
            torch.func.vmap(function)(x)


@pytest.mark.parametrize("function", FORWARD.values(), ids=FORWARD)
def test_gradient_functions_without_vmap(function):
    x = draw()[0]
    ours = torch.func.grad(lambda x: function(x).square().sum())(x)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(function(x).square().sum(), x)
    assert torch.equal(ours, expected)


def test_compiled_gradients_are_refused():
    compiled = torch.compile(torch.func.vmap(functional.softmax), backend="aot_eager")
    x = draw()
    assert torch.equal(compiled(x), functional.softmax(x))
    with pytest.raises(RuntimeError, match="does not have vmap support"):
        compiled(draw(requires_grad=True))
