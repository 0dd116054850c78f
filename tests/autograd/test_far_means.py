"""Gradients of a batch norm in training behind 16-bit columns with a far mean, on the CPU."""

import pytest
import torch
from cases import BF16, FP16, Shape
from cases_far_means import FAR, SOURCES, make_far_call
from norm_functions import FUSED
from torch.nn import functional as F

SHAPE = Shape(24, 18, 8, "two columns of each kind")


@pytest.mark.parametrize(("ratio", "deviation"), FAR)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("numerics", [BF16, FP16], ids=str)
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_gradients(function, numerics, source, ratio, deviation):
    """The backward pass reads the z whose mean it knows: not one that was rounded since."""
    call = make_far_call(function.op(True), SHAPE, numerics, ratio, deviation, source)
    grad_y = torch.randn(SHAPE.m, SHAPE.n, generator=torch.Generator().manual_seed(1))

    names = ("x", "weight", "gamma", "beta")

    def differentiate(run, dtype):
        x, weight, gamma, beta = (getattr(call, name).to(dtype).requires_grad_() for name in names)
        y = run(x, weight, call.bias.to(dtype), gamma, beta)
        return torch.autograd.grad(y, (x, weight, gamma, beta), grad_y.to(y.dtype))

    def run(x, weight, bias, gamma, beta):
        options = {"training": True, "eps": call.eps}
        return function.ours(x, weight, bias, None, None, None, gamma, beta, **options)

    def run_plain(x, weight, bias, gamma, beta):
        y = F.batch_norm(F.linear(x, weight, bias), None, None, gamma, beta, True, 0.0, call.eps)
        return torch.softmax(y, 1) if function is FUSED[1] else y

    ours, eager = differentiate(run, numerics.dtype), differentiate(run_plain, numerics.dtype)
    truth = differentiate(run_plain, torch.float64)
    for name, mine, theirs, exact in zip(names, ours, eager, truth, strict=True):
        error, eager_error = (mine - exact).abs().max(), (theirs - exact).abs().max()
        # 16-bit sums over rows on the CPU are of fp32 numbers: an ulp of the largest result.
        limit = 2 * eager_error + torch.finfo(numerics.dtype).eps * exact.abs().max()
        assert error <= limit, name


def test_z_is_returned_less_its_mean():
    call = make_far_call(FUSED[0].op(True), SHAPE, BF16, 1e4, 1.0)
    centre = torch.full((SHAPE.n,), torch.nan)
    copy = call.copy_updated()
    _, z, mean, _ = copy.overload()(*copy.arguments(), centre=centre)
    truth = call.in_float64().refer_all()["z"]
    error = (z.double() - centre.double() - (truth - mean.double())).abs()
    assert (error <= 2.0**-8 * (truth - mean.double()).abs() + 2.0**-22 * truth.abs()).all()
