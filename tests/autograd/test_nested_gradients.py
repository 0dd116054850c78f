"""torch.func.grad within torch.func.grad: what only the outer one asks for is not lost."""

import pytest
import torch
from norm_functions import FUNCTIONS, call, make_leaves, make_statistics
from plain import run_plain

from cutlass_fused import functional

M, N, K = 5, 4, 3


def run_softmax(x):
    return torch.softmax(x, -1)


def draw_product(*names):
    sizes = {"x": (M, K), "weight": (N, K), "bias": (N,), "scale": (N,)}
    return {name: torch.randn(sizes[name], dtype=torch.float64) for name in names}


def list_cases():
    """(ours, plain, leaves by name), each function called as run(leaves)."""
    linear = torch.nn.functional.linear
    for ours, plain, names in (
        (functional.linear, linear, ("x", "weight", "bias")),
        (functional.linear_scale_leaky_relu, run_plain, ("x", "weight", "bias", "scale")),
        (functional.softmax, run_softmax, ("x",)),
    ):
        for name in names:
            yield pytest.param(
                lambda leaves, run=ours: run(*leaves.values()),
                lambda leaves, run=plain: run(*leaves.values()),
                lambda names=names: draw_product(*names),
                name,
                id=f"{ours.__name__}-{name}",
            )
    for function in FUNCTIONS:
        for training in (False, True):
            for name in (*function.names, "gamma", "beta"):
                yield pytest.param(
                    bind(function.ours, training),
                    bind(function.plain, training),
                    lambda f=function: {n: t.detach() for n, t in make_leaves(f).items()},
                    name,
                    id=f"{function}-{'train' if training else 'eval'}-{name}",
                )


def bind(run, training):
    # Under torch.func.grad PyTorch refuses in-place updates of statistics from outside.
    torch.manual_seed(1)  # the same for both
    statistics = (None, None) if training else make_statistics()
    return lambda leaves: call(run, leaves, statistics, training)


each_argument = pytest.mark.parametrize(("ours", "plain", "make", "name"), list(list_cases()))


def differentiate_nested(run, leaves, name, weights):
    """d/dleaf of sum(d/du sum(run(leaf) * u * u)) at u = weights: that of 2 * weights * run."""

    def outer(leaf):
        def inner(u):
            return (run(leaves | {name: leaf}) * u * u).sum()

        return torch.func.grad(inner)(weights).sum()

    return torch.func.grad(outer)(leaves[name])


@each_argument
def test_outer_gradient(ours, plain, make, name):
    leaves = make()
    weights = torch.randn_like(plain(leaves))
    expected = differentiate_nested(plain, leaves, name, weights)
    torch.testing.assert_close(differentiate_nested(ours, leaves, name, weights), expected)


@each_argument
def test_gradient_by_autograd_outside(ours, plain, make, name):
    """The outer one is none of torch.func's."""
    leaves = make()
    leaves[name].requires_grad_()
    weights = torch.randn_like(plain(leaves))
    grads = []
    for run in (ours, plain):
        inner = torch.func.grad(lambda u, run=run: (run(leaves) * u * u).sum())(weights)
        grads += torch.autograd.grad(inner.sum(), leaves[name])
    torch.testing.assert_close(*grads)


def test_three_levels():
    x, weight = draw_product("x", "weight").values()

    def differentiate(run):
        def outer(weight):
            def middle(u):
                return torch.func.grad(lambda v: (run(x, weight) * u * u * v).sum())(u).sum()

            return torch.func.grad(middle)(torch.ones(M, N, dtype=x.dtype)).sum()

        return torch.func.grad(outer)(weight)

    torch.testing.assert_close(
        differentiate(functional.linear), differentiate(torch.nn.functional.linear)
    )


def test_compiled_outside_of_transforms():
    """Parameters that ask for nothing, with gradients enabled, are no reason to leave the graph."""
    weight = draw_product("weight")["weight"]
    compiled = torch.compile(
        lambda x: functional.linear(x, weight), fullgraph=True, backend="aot_eager"
    )
    x = draw_product("x")["x"]
    assert torch.equal(compiled(x), functional.linear(x, weight))


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "alone"])
def test_compiled(nested):
    """TorchDynamo leaves the transform to eager PyTorch."""
    leaves = draw_product("x", "weight")
    weights = torch.randn(M, N, dtype=torch.float64)

    def differentiate(weight):
        def run(leaves):
            return functional.linear_scale_leaky_relu(leaves["x"], leaves["weight"])

        if nested:
            return differentiate_nested(run, leaves, "weight", weights)
        return torch.func.grad(lambda weight: run(leaves | {"weight": weight}).sum())(weight)

    expected = differentiate(leaves["weight"])
    assert expected.abs().sum() > 0
    compiled = torch.compile(differentiate, backend="aot_eager")
    assert torch.equal(compiled(leaves["weight"]), expected)
