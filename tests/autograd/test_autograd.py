"""Gradients, on the CPU path: gradcheck in float64, then everything that can go wrong around it."""

import itertools

import pytest
import torch
from plain import run_plain
from torch.autograd import gradcheck

from cutlass_fused import functional

M, N, K = 3, 4, 5
LEADING = {"1-D": (), "2-D": (M,), "3-D": (2, M)}
SCALES = {
    "number": lambda dtype: 1.5,
    "negative": lambda dtype: -0.75,
    "zero": lambda dtype: 0.0,
    "0-dim": lambda dtype: torch.tensor(-1.25, dtype=dtype, requires_grad=True),
    "(1,)": lambda dtype: torch.tensor([1.25], dtype=dtype, requires_grad=True),
    "(N,)": lambda dtype: torch.tensor([0.5, -1.5, 2.0, -0.25], dtype=dtype, requires_grad=True),
}


def make_leaves(leading=(M,), dtype=torch.float64, with_bias=True):
    x = torch.randn(*leading, K, dtype=dtype, requires_grad=True)
    weight = torch.randn(N, K, dtype=dtype, requires_grad=True)
    bias = torch.randn(N, dtype=dtype, requires_grad=True) if with_bias else None
    return x, weight, bias


def collect_grads(function, leaves, grad_y):
    """y, and the gradients of those leaves that ask for one."""
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    y = function()
    return y, torch.autograd.grad(y, leaves, grad_y)


def compare_with_plain(leaves, slope=0.1, tolerance=1e-12):
    """Value and gradients of ours and of the plain expression."""
    grad_y = torch.randn_like(run_plain(*leaves, slope).detach())
    ours = collect_grads(lambda: functional.linear_scale_leaky_relu(*leaves, slope), leaves, grad_y)
    plain = collect_grads(lambda: run_plain(*leaves, slope), leaves, grad_y)
    torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance)


# ---- gradcheck ----


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("leading", LEADING.values(), ids=LEADING.keys())
def test_gradcheck_linear(leading, with_bias):
    leaves = make_leaves(leading, with_bias=with_bias)
    assert gradcheck(functional.linear, leaves)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 2.0])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("leading", LEADING.values(), ids=LEADING.keys())
def test_gradcheck_leaky_relu(leading, scale, slope, with_bias):
    x, weight, bias = make_leaves(leading, with_bias=with_bias)
    leaves = (x, weight, bias, SCALES[scale](torch.float64))
    assert gradcheck(functional.linear_scale_leaky_relu, (*leaves, slope))


REQUIRE = [
    subset
    for size in (1, 2, 3)
    for subset in itertools.combinations(("x", "weight", "bias", "scale"), size)
]


@pytest.mark.parametrize("subset", REQUIRE, ids="+".join)
def test_each_subset_of_gradients(subset):
    """What is not asked for is neither computed nor in the way of the others."""
    leaves = (*make_leaves(), SCALES["(N,)"](torch.float64))
    for name, leaf in zip(("x", "weight", "bias", "scale"), leaves, strict=True):
        leaf.requires_grad_(name in subset)
    compare_with_plain(leaves)
    if subset != ("scale",):
        assert gradcheck(functional.linear_scale_leaky_relu, (*leaves, -0.5))
    for leaf in leaves:
        assert leaf.grad is None


# ---- values that tempt a shortcut ----


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5])
@pytest.mark.parametrize("scale", ["0-dim", "(1,)", "(N,)"])
def test_gradient_of_a_zero_scale(scale, slope):
    """z cannot be had from y when the scale is 0."""
    value = SCALES[scale](torch.float64).detach().mul(0.0).requires_grad_()
    compare_with_plain((*make_leaves(), value), slope)


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 2.0])
def test_gradient_at_zero_is_that_of_leaky_relu(slope):
    """v = 0 counts as negative in PyTorch."""
    x, weight, bias = make_leaves()
    with torch.no_grad():
        x.zero_()
        bias.zero_()
    for scale in (2.0, SCALES["(N,)"](torch.float64)):
        compare_with_plain((x, weight, bias, scale), slope)


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5])
def test_nan_and_infinity_go_where_pytorch_puts_them(slope):
    x, weight, bias = make_leaves()
    with torch.no_grad():
        x[0, 0], x[1, 1], bias[2] = torch.nan, torch.inf, -torch.inf
    for scale in (2.0, SCALES["(N,)"](torch.float64)):
        leaves = (x, weight, bias, scale)
        grad_y = torch.ones(M, N, dtype=torch.float64)
        ours = collect_grads(
            lambda s=scale: functional.linear_scale_leaky_relu(x, weight, bias, s, slope),
            leaves,
            grad_y,
        )
        plain = collect_grads(lambda s=scale: run_plain(x, weight, bias, s, slope), leaves, grad_y)
        torch.testing.assert_close(ours, plain, equal_nan=True)


# ---- shapes and layouts ----


@pytest.mark.parametrize(
    "make_x",
    [
        lambda: torch.randn(0, K),
        lambda: torch.randn(2, 0, K),
        lambda: torch.randn(1, K).expand(M, K),
        lambda: torch.randn(K, M).t(),
        lambda: torch.randn(M, 2 * K)[:, ::2],
        lambda: torch.randn(M, 2, K).transpose(0, 1),
    ],
    ids=["empty", "empty 3-D", "expanded", "transposed", "strided", "swapped 3-D"],
)
def test_layouts(make_x):
    _, weight, bias = make_leaves()
    x = make_x().double().detach().requires_grad_()
    compare_with_plain((x, weight, bias, SCALES["(N,)"](torch.float64)))
    compare_with_plain((x, weight, bias, 2.0))


def test_k_zero():
    x = torch.randn(M, 0, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(N, 0, dtype=torch.float64, requires_grad=True)
    compare_with_plain((x, weight, make_leaves()[2], 2.0))


def test_expanded_and_strided_incoming_gradients():
    leaves = (*make_leaves(), 2.0)
    for grad_y in (
        torch.ones((), dtype=torch.float64).expand(M, N),
        torch.randn(N, M, dtype=torch.float64).t(),
    ):
        ours = collect_grads(
            lambda: functional.linear_scale_leaky_relu(*leaves, 0.1), leaves, grad_y
        )
        plain = collect_grads(lambda: run_plain(*leaves, 0.1), leaves, grad_y)
        torch.testing.assert_close(ours, plain)


# ---- dtypes ----


@pytest.mark.parametrize("scale", ["number", "0-dim", "(N,)"])
@pytest.mark.parametrize("out_dtype", [None, torch.float32], ids=str)
@pytest.mark.parametrize("vectors", [None, torch.float32], ids=["own", "fp32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_each_gradient_has_the_dtype_of_its_input(dtype, vectors, out_dtype, scale):
    x, weight, _ = make_leaves(dtype=dtype)
    bias = make_leaves(dtype=vectors or dtype)[2]
    leaves = (x, weight, bias, SCALES[scale](vectors or dtype))
    y = functional.linear_scale_leaky_relu(*leaves, 0.1, out_dtype=out_dtype)
    grad_y = torch.randn(y.shape).to(y.dtype)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    grads = torch.autograd.grad(y, tensors, grad_y)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    exact_scale = exact[3:] or [leaves[3]]
    exact_y = run_plain(*exact[:3], *exact_scale, 0.1)
    expected = torch.autograd.grad(exact_y, exact, grad_y.double())
    step = torch.finfo(dtype).eps
    for leaf, grad, truth in zip(tensors, grads, expected, strict=True):
        assert grad.dtype == leaf.dtype
        torch.testing.assert_close(grad.double(), truth, rtol=8 * step, atol=8 * step)


def test_with_and_without_gradients_the_values_agree():
    x, weight, bias = make_leaves(dtype=torch.bfloat16)
    for slope in (0.1, -0.5, 0.0):
        for scale in (2.0, -2.0, SCALES["(N,)"](torch.bfloat16)):
            with_grad = functional.linear_scale_leaky_relu(x, weight, bias, scale, slope)
            with torch.no_grad():
                without = functional.linear_scale_leaky_relu(x, weight, bias, scale, slope)
            assert torch.equal(with_grad, without)


# ---- contract with autograd ----


def test_graph_of_constant_gradients():
    """Nothing is left out for tensors that want no gradient."""
    x, weight, bias = make_leaves()
    y = functional.linear(x, weight.detach(), None)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert not grad.requires_grad


@pytest.mark.parametrize("function", [functional.linear, functional.linear_scale_leaky_relu])
@pytest.mark.parametrize("name", ["x", "weight"])
def test_changed_inputs_are_noticed(function, name):
    """What is kept for the backward pass is saved as PyTorch wants it, not hidden from it."""
    x, weight, bias = make_leaves()
    inputs = {"x": x * 1.0, "weight": weight * 1.0}
    y = function(inputs["x"], inputs["weight"], bias)
    inputs[name].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_result_may_be_written_in_place():
    """So it is with PyTorch's LeakyReLU, behind which another in-place op stands."""
    leaves = (*make_leaves(), 2.0)
    ours = collect_grads(
        lambda: functional.linear_scale_leaky_relu(*leaves, 0.1).mul_(3.0),
        leaves,
        torch.ones(M, N, dtype=torch.float64),
    )
    plain = collect_grads(
        lambda: run_plain(*leaves, 0.1) * 3.0, leaves, torch.ones(M, N, dtype=torch.float64)
    )
    torch.testing.assert_close(ours, plain)


def test_backward_twice_with_retained_graph():
    leaves = (*make_leaves(), SCALES["(N,)"](torch.float64))
    y = functional.linear_scale_leaky_relu(*leaves, 0.1).sum()
    first = torch.autograd.grad(y, leaves, retain_graph=True)
    second = torch.autograd.grad(y, leaves)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, leaves)


def test_checkpointing():
    leaves = (*make_leaves(), SCALES["(N,)"](torch.float64))

    def run():
        return torch.utils.checkpoint.checkpoint(
            functional.linear_scale_leaky_relu, *leaves, 0.1, use_reentrant=False
        )

    grad_y = torch.randn(M, N, dtype=torch.float64)
    ours = collect_grads(run, leaves, grad_y)
    plain = collect_grads(lambda: run_plain(*leaves, 0.1), leaves, grad_y)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("op", ["linear", "linear_scale_leaky_relu"])
def test_raw_ops_have_no_gradient_and_say_so(op):
    """Gradients live in `functional`; PyTorch warns whoever goes backward through a raw op."""
    x, weight, _ = make_leaves(dtype=torch.float32)
    y = getattr(torch.ops.cutlass_fused, op)(x, weight)
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        y.sum().backward()
    assert x.grad is None and weight.grad is None
