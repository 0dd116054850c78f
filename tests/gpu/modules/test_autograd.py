"""Gradients on the GPU against eager in the same precision, truth in float64.

x and weight are small integers and the bias is a half: z is exact and never 0 in every precision,
so that no rounding moves an element to the other side of the kink, where gradients jump.
"""

import pytest
import torch
from accuracy import matmul_settings
from cases import BF16, FP16, IEEE, TF32
from judge_gradients import judge_all
from plain import run_plain
from recorded_ops import RecordOps

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

M, N, K = 192, 136, 128
PRECISIONS = (IEEE, TF32, BF16, FP16)


def make_leaves(numerics, device, scale="vector", leading=(M,)):
    generator = torch.Generator(device).manual_seed(0)

    def integers(*size):
        numbers = torch.randint(-2, 3, size, generator=generator, device=device)
        return numbers.to(numerics.dtype)

    def reals(*size):
        return torch.randn(size, generator=generator, device=device).to(numerics.dtype)

    leaves = {"x": integers(*leading, K), "weight": integers(N, K), "bias": integers(N) + 0.5}
    if scale == "vector":
        leaves["scale"] = reals(N)
    elif scale == "fp32 vector":
        leaves["scale"] = reals(N).float()
    elif scale == "one":
        leaves["scale"] = reals(1)
    elif scale == "scalar":
        leaves["scale"] = reals(1)[0].clone()
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}, reals(*leading, N)


def differentiate(function, leaves, grad_y, number=None):
    """y and the gradient of every leaf, by name."""
    scale = leaves.get("scale", number)
    y = function(leaves["x"], leaves["weight"], leaves["bias"], scale)
    grads = torch.autograd.grad(y, list(leaves.values()), grad_y.to(y.dtype))
    return {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}


def compare(numerics, leaves, grad_y, slope=0.1, number=None):
    def run_ours(*arguments):
        return functional.linear_scale_leaky_relu(*arguments, slope, precision=numerics.precision)

    ours = differentiate(run_ours, leaves, grad_y, number)
    with matmul_settings(numerics.precision):
        eager = differentiate(lambda *a: run_plain(*a, slope), leaves, grad_y, number)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    truth = differentiate(lambda *a: run_plain(*a, slope), exact, grad_y, number)
    judge_all(ours, eager, truth)


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 2.0])
@pytest.mark.parametrize("scale", ["vector", "fp32 vector", "one", "scalar"])
@pytest.mark.parametrize("numerics", PRECISIONS, ids=str)
def test_scale_as_tensor(device, numerics, scale, slope):
    compare(numerics, *make_leaves(numerics, device, scale), slope)


@pytest.mark.parametrize("number", [2.0, -0.75])
@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5])
@pytest.mark.parametrize("numerics", PRECISIONS, ids=str)
def test_scale_as_number(device, numerics, slope, number):
    compare(numerics, *make_leaves(numerics, device, "number"), slope, number)


@pytest.mark.parametrize("leading", [(), (1,), (3, 17), (0,)], ids=str)
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_leading_dimensions(device, numerics, leading):
    leaves, grad_y = make_leaves(numerics, device, leading=leading)
    if 0 in leading:
        grads = differentiate(functional.linear_scale_leaky_relu, leaves, grad_y)
        assert grads["x"].shape == (0, K)
        assert all(not grads[name].any() for name in ("weight", "bias", "scale"))
    else:
        compare(numerics, leaves, grad_y)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("numerics", PRECISIONS, ids=str)
def test_linear(device, numerics, with_bias):
    leaves, grad_y = make_leaves(numerics, device, "number")
    if not with_bias:
        del leaves["bias"]

    def differentiate_linear(function, leaves):
        y = function(leaves["x"], leaves["weight"], leaves.get("bias"))
        grads = torch.autograd.grad(y, list(leaves.values()), grad_y.to(y.dtype))
        return {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}

    def run_ours(*arguments):
        return functional.linear(*arguments, precision=numerics.precision)

    plain = torch.nn.functional.linear
    ours = differentiate_linear(run_ours, leaves)
    with matmul_settings(numerics.precision):
        eager = differentiate_linear(plain, leaves)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    judge_all(ours, eager, differentiate_linear(plain, exact))


@pytest.mark.parametrize("numerics", [IEEE, TF32], ids=str)
def test_backward_has_the_precision_of_forward(device, numerics):
    """PyTorch's setting says the opposite, and has no say."""
    other = "tf32" if numerics is IEEE else "ieee"
    leaves, grad_y = make_leaves(numerics, device)
    # Numbers that TF32 rounds, so that a product in the other precision shows.
    with torch.no_grad():
        leaves["x"] += 2.0**-13
    torch.backends.cuda.matmul.fp32_precision = other
    with RecordOps() as record:
        y = functional.linear_scale_leaky_relu(*leaves.values(), 0.1, precision=numerics.precision)
        torch.autograd.grad(y, list(leaves.values()), grad_y)
    products = [arguments for name, arguments in record.calls if name != "apply_program"]
    assert len(products) >= 3  # forward, gradient of x, gradient of weight
    for arguments in products:
        # Arguments that equal the schema's default are not recorded.
        assert arguments.get("precision", "ieee") == numerics.precision


def test_strided_gradient_and_inputs(device):
    leaves, grad_y = make_leaves(IEEE, device)
    leaves["x"] = leaves["x"].detach().t().contiguous().t().requires_grad_()
    leaves["weight"] = leaves["weight"].detach().t().contiguous().t().requires_grad_()
    compare(IEEE, leaves, grad_y.t().contiguous().t())
    compare(IEEE, leaves, torch.ones((), device=device).expand(M, N))
