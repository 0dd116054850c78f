"""linear_scale_batch_norm_inference: every dtype and shape, every kind of vector, a large mean."""

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM
from cases import (
    BF16_FP32,
    FP16_FP32,
    IEEE,
    LAYOUT_SHAPE,
    NUMERICS,
    ONE_OUTPUT,
    SHAPES,
    TF32,
    make_call,
    make_large_mean_call,
)
from check_call import check_call
from layouts import SCALE_KINDS, VECTOR_KINDS, cut_block, swap_leading

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_shapes(device, numerics, shape):
    check_call(make_call(BATCH_NORM, shape, numerics, device))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_vectors(device, numerics, kind):
    """Bias, mean, variance, gamma and beta of one kind; "none" leaves out what may be left out."""
    check_call(make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device, bias=kind, vectors=kind))


@pytest.mark.parametrize("kind", SCALE_KINDS)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_scale(device, numerics, kind):
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device, scale=kind, vectors="fp32")
    check_call(call)


@pytest.mark.parametrize("missing", [("gamma",), ("beta",), ("gamma", "beta"), ("bias", "scale")])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_missing_vectors(device, numerics, missing):
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device)
    check_call(call.change(**dict.fromkeys(missing)))


@pytest.mark.parametrize("eps", [1e-5, 0.0, 0.3])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_eps(device, numerics, eps):
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device, vectors="fp32", eps=eps)
    check_call(call)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_variance_of_zero(device, numerics):
    """A column that never changed: eps alone stands under the root."""
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device, vectors="fp32")
    call.running_var[::5] = 0
    check_call(call)


@pytest.mark.parametrize("numerics", [FP16_FP32, BF16_FP32, IEEE, TF32], ids=str)
def test_mean_much_larger_than_deviation(device, numerics):
    check_call(make_large_mean_call(numerics, device))


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_strided_everything(device, numerics):
    kinds = {"bias": "strided", "scale": "offset", "vectors": "strided"}
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, numerics, device, **kinds)
    check_call(call.change(x=cut_block(call.x), weight=cut_block(call.weight)))
    check_call(call.change(x=swap_leading(call.x)))


def test_is_batch_norm_in_eval(device):
    """Against the module itself, as people have it."""
    call = make_call(BATCH_NORM, LAYOUT_SHAPE, IEEE, device)
    norm = torch.nn.BatchNorm1d(LAYOUT_SHAPE.n, eps=call.eps, device=device).eval()
    with torch.no_grad():
        norm.running_mean.copy_(call.running_mean)
        norm.running_var.copy_(call.running_var)
        norm.weight.copy_(call.gamma)
        norm.bias.copy_(call.beta)
        z = torch.nn.functional.linear(call.x, call.weight, call.bias) * call.scale
        judge = Judge(call)
        judge.check(norm(z))
        judge.check(call.run())
