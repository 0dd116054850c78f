"""linear_scale_leaky_relu: every dtype and shape, every kind of scale, slopes of any sign."""

import pytest
import torch
from accuracy import Judge
from calls import LEAKY
from cases import BF16, FP16, LAYOUT_SHAPE, NUMERICS, ONE_OUTPUT, SHAPES, Shape, make_call
from check_call import check_call
from layouts import SCALE_KINDS, VECTOR_KINDS, cut_block, make_vector, swap_leading

from cutlass_fused import functional

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_shapes(device, numerics, shape):
    check_call(make_call(LEAKY, shape, numerics, device))


@pytest.mark.parametrize("kind", SCALE_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_scale(device, numerics, kind):
    check_call(make_call(LEAKY, LAYOUT_SHAPE, numerics, device, scale=kind, multiplier=-1.5))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_bias_and_scale_of_other_kinds(device, numerics, kind):
    """Each vector brings its own dtype and stride."""
    check_call(make_call(LEAKY, LAYOUT_SHAPE, numerics, device, bias=kind, scale="fp32"))
    check_call(make_call(LEAKY, LAYOUT_SHAPE, numerics, device, bias="fp32", scale=kind))


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 1.0, 2.0])
@pytest.mark.parametrize("multiplier", [1.0, 0.0, -3.0])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_slope_and_multiplier(device, numerics, multiplier, slope):
    check_call(make_call(LEAKY, LAYOUT_SHAPE, numerics, device, multiplier=multiplier, slope=slope))


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_scale_of_zero(device, numerics):
    call = make_call(LEAKY, LAYOUT_SHAPE, numerics, device)
    call.scale[::3] = 0
    check_call(call)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_strided_everything(device, numerics):
    kinds = {"bias": "strided", "scale": "offset"}
    call = make_call(LEAKY, LAYOUT_SHAPE, numerics, device, **kinds)
    check_call(call.change(x=cut_block(call.x), weight=cut_block(call.weight)))
    check_call(call.change(x=swap_leading(call.x)))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("kind", ["own", "fp32", "strided"])
def test_narrow_vectors(device, kind, n):
    """Vectors shorter than one access; a scale of N = 1 is one element and one column."""
    shape = Shape(40, n, 64, "few columns")
    check_call(make_call(LEAKY, shape, BF16, device, bias=kind, scale=kind))


@pytest.mark.parametrize("scale", [2.0, -0.5, 0.0, 3])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_functional_with_a_number(device, numerics, scale):
    call = make_call(LEAKY, LAYOUT_SHAPE, numerics, device, scale="none", multiplier=scale)
    ours = functional.linear_scale_leaky_relu(
        call.x, call.weight, call.bias, scale, 0.1, precision=numerics.precision
    )
    Judge(call).check(ours)


@pytest.mark.parametrize("kind", ["own", "fp32", "scalar", "scalar_fp32", "one", "one_fp32"])
@pytest.mark.parametrize("numerics", [FP16, BF16], ids=str)
def test_functional_gives_the_dtype_of_the_expression(device, numerics, kind):
    call = make_call(LEAKY, LAYOUT_SHAPE, numerics, device, multiplier=1.0)
    scale = make_vector(kind, call.scale.float(), numerics.dtype)
    z = torch.nn.functional.linear(call.x, call.weight, call.bias)
    out_dtype = (z * scale).dtype
    ours = functional.linear_scale_leaky_relu(call.x, call.weight, call.bias, scale, 0.1)
    Judge(call.change(scale=scale, out_dtype=out_dtype)).check(ours)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_scale_of_no_dimension_on_the_host(device, numerics):
    """It is copied to the GPU without a wait, and gives what one that lies there gives: the same
    bits with and without a gradient, and the same gradient, on the host."""
    call = make_call(LEAKY, LAYOUT_SHAPE, numerics, device, scale="none", multiplier=1.0)
    there = torch.tensor(-1.25, device=device, requires_grad=True)
    here = there.detach().cpu().requires_grad_()

    def run(scale):
        return functional.linear_scale_leaky_relu(
            call.x, call.weight, call.bias, scale, 0.1, precision=numerics.precision
        )

    with torch.no_grad():
        plain = run(there)
    trained = run(there)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.no_grad():
            ours = run(here)
        ours_trained = run(here)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(ours, plain) and torch.equal(ours_trained, trained)
    grad_y = torch.randn_like(trained)
    (grad,) = torch.autograd.grad(ours_trained, here, grad_y)
    (expected,) = torch.autograd.grad(trained, there, grad_y)
    assert grad.is_cpu and torch.equal(grad, expected.cpu())
