"""Forward mode and torch.func's transforms, on the CPU in float64, beside the plain models."""

import pytest
import torch
from differentiated import each_case, every_case
from norm_functions import FUNCTIONS, N, call, make_leaves, make_statistics
from torch.autograd import forward_ad, gradcheck

from cutlass_fused import functional

pytestmark = pytest.mark.usefixtures("products")


@every_case
def test_gradcheck(case):
    leaves = tuple(case.make().values())
    options = {"check_forward_ad": True, "check_backward_ad": False}
    assert gradcheck(case.run, leaves, check_batched_forward_grad=True, **options)


def take_jvp(run, tensors, tangents):
    return torch.func.jvp(run, tensors, tangents)


def take_vjp(run, tensors, tangents):
    y, pull = torch.func.vjp(run, *tensors)
    return y, pull(y.sin())


def take_hvp(run, tensors, tangents):
    """Forward over reverse."""

    def grads(*tensors):
        return torch.func.grad(lambda t: run(*t).sin().sum())(tensors)

    return torch.func.jvp(grads, tensors, tangents)


def take_hvp_reverse(run, tensors, tangents):
    def directional(*tensors):
        grads = torch.func.grad(lambda t: run(*t).sin().sum())(tensors)
        return sum((g * t).sum() for g, t in zip(grads, tangents, strict=True))

    return torch.func.grad(lambda t: directional(*t))(tensors)


def take_reverse_over_forward(run, tensors, tangents):
    def directional(tensors):
        return torch.func.jvp(run, tensors, tangents)[1].sin().sum()

    return torch.func.grad(directional)(tensors)


def take_jacobian_of_gradient(run, tensors, tangents):
    """A gradient that was recorded before, in forward mode along what came in."""
    tensors = [t.clone().requires_grad_() for t in tensors]
    y = run(*tensors)
    with forward_ad.dual_level():
        incoming = forward_ad.make_dual(torch.ones_like(y), y.detach().cos())
        grads = torch.autograd.grad(y, tensors, incoming, allow_unused=True)
        found = [None if g is None else forward_ad.unpack_dual(g).tangent for g in grads]
        return [
            torch.zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)
        ]


def per_first(transform):
    return lambda run, tensors, tangents: transform(lambda x: run(x, *tensors[1:]))(tensors[0])


TRANSFORMS = {
    "jvp": take_jvp,
    "vjp": take_vjp,
    "jacrev": per_first(torch.func.jacrev),
    "jacfwd": per_first(torch.func.jacfwd),
    "hessian": per_first(lambda f: torch.func.hessian(lambda x: f(x).sin().sum())),
    "jacrev of jacrev": per_first(lambda f: torch.func.jacrev(torch.func.jacrev(f))),
    "jacfwd of jacfwd": per_first(lambda f: torch.func.jacfwd(torch.func.jacfwd(f))),
    "hvp": take_hvp,
    "hvp in reverse": take_hvp_reverse,
    "reverse over forward": take_reverse_over_forward,
    "forward over a recorded gradient": take_jacobian_of_gradient,
    "autograd's hessian": per_first(
        lambda f: lambda x: torch.autograd.functional.hessian(lambda x: f(x).sin().sum(), x)
    ),
    "autograd's jvp": lambda run, tensors, tangents: torch.autograd.functional.jvp(
        run, tensors, tangents
    ),
}


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("transform", TRANSFORMS)
@each_case
def test_as_the_plain_expression(case, transform):
    tensors = tuple(t.detach() for t in case.make().values())
    tangents = tuple(map(torch.randn_like, tensors))
    results = [TRANSFORMS[transform](run, tensors, tangents) for run in (case.run, case.run_plain)]
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


PER_SAMPLE = {
    "grad": torch.func.grad,
    "hessian": torch.func.hessian,
    "grad of grad": lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).sin().sum()),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x.sin(),))[1],
}


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("which", [0, 1], ids=["first", "all"])
@pytest.mark.parametrize("transform", PER_SAMPLE)
@each_case
def test_slices(case, transform, which):
    """Derivatives of each slice of the first leaf, or of all at once: those of a loop."""
    leaves = [[t.detach() for t in case.make().values()] for _ in range(3)]  # of three calls

    def differentiate(x, *others):
        run = PER_SAMPLE[transform](lambda x: case.run(x, *others).sin().sum())
        return run(x)

    others = [[t.detach() for t in leaves[0][1:]]] * 3 if not which else [s[1:] for s in leaves]
    expected = torch.stack([differentiate(s[0], *o) for s, o in zip(leaves, others, strict=True)])
    x = torch.stack([s[0] for s in leaves])
    if which:
        stacked = [torch.stack(ts) for ts in zip(*others, strict=True)]
        found = torch.func.vmap(differentiate)(x, *stacked)
    else:
        found = torch.func.vmap(lambda x: differentiate(x, *others[0]))(x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["jvp", "dual level", "hessian"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_statistics_are_moved_once(function, mode):
    """Also by a call in forward mode, and none of them gets a tangent."""
    leaves = {name: t.detach() for name, t in make_leaves(function).items()}
    torch.manual_seed(3)
    statistics = make_statistics()
    count = torch.zeros((), dtype=torch.int64)
    expected = [t.clone() for t in statistics]
    call(function.plain, leaves, expected, True)

    def run(x):
        y = call(function.ours, leaves | {"x": x}, statistics, True, num_batches_tracked=count)
        return y.sin().sum()

    x = leaves["x"]
    if mode == "jvp":
        torch.func.jvp(run, (x,), (x,))
    elif mode == "hessian":
        torch.func.hessian(run)(x)
    else:
        with forward_ad.dual_level():
            assert forward_ad.unpack_dual(run(forward_ad.make_dual(x, x))).tangent is not None
            assert all(forward_ad.unpack_dual(t).tangent is None for t in statistics)
    assert count == 1
    torch.testing.assert_close(list(statistics), expected)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_training_of_slices(function):
    """Statistics of each slice; running ones must have slices too, or nothing is updated."""
    leaves = {name: t.detach() for name, t in make_leaves(function).items()}
    x = torch.stack([leaves["x"], leaves["x"].cos()])

    def run(x, mean, variance, count):
        options = {"num_batches_tracked": count}
        return call(function.ours, leaves | {"x": x}, (mean, variance), True, **options)

    ours = torch.zeros(2, N).double(), torch.ones(2, N).double(), torch.zeros(2).long()
    plain = [t.clone() for t in ours]
    found = torch.func.vmap(run)(x, *ours)
    expected = torch.stack([run(*each) for each in zip(x, *plain, strict=True)])
    torch.testing.assert_close((found, *ours), (expected, *plain))
    shared = [t[0].clone() for t in ours]
    before = [t.clone() for t in shared]
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda x: run(x, *shared))(x)
    assert all(map(torch.equal, shared, before))


def test_under_autocast():
    """What is cast is cast as in reverse mode, and nothing else is."""
    x, weight, bias, scale = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5), torch.randn(5)

    def run(x):
        return functional.linear_scale_leaky_relu(x, weight, bias, scale)

    with torch.autocast("cpu"):
        y, tangent = torch.func.jvp(run, (x,), (x,))
        expected = run(x)
    assert y.dtype == tangent.dtype == expected.dtype
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_compiled(grad):
    """TorchDynamo leaves the transform to eager PyTorch."""
    x, weight = torch.randn(3, 4), torch.randn(5, 4)

    def run(x):
        return torch.func.jvp(lambda x: functional.linear(x, weight), (x,), (x,))[1]

    with torch.set_grad_enabled(grad):
        found = torch.compile(run, backend="aot_eager")(x)
    torch.testing.assert_close(found, x @ weight.t())


def test_compiled_before_forward_mode():
    """A graph that knows of no tangent does not run where there is one."""
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    run = torch.compile(lambda x: functional.linear(x, weight), backend="aot_eager")
    run(x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(run(forward_ad.make_dual(x, x))).tangent
    torch.testing.assert_close(tangent, x @ weight.t())
