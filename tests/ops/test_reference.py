"""The reference, the truth of every other test, against the plain torch.nn modules."""

import pytest
import torch
from calls import BATCH_NORM, LEAKY, LINEAR, OPS
from cases import LAYOUT_SHAPE, NUMERICS, SHAPES, Shape, make_call, make_special_call
from check_call import check_call
from layouts import MATRIX_LAYOUTS, RANK_LAYOUTS, SCALE_KINDS, VECTOR_KINDS
from torch.nn import functional as F

from cutlass_fused import reference

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SMALL = Shape(9, 14, 11, "small and odd")
# Every reason that a CPU can have; the large ones only repeat it.
CPU_SHAPES = [shape for shape in SHAPES if shape.m * shape.n <= 10_000]


def make_module(dtype):
    """A torch.nn.Linear whose numbers are those of `dtype`, computing in at least float32."""
    linear = torch.nn.Linear(SMALL.k, SMALL.n, dtype=torch.float64)
    wide = dtype if dtype == torch.float64 else torch.float32
    return linear.to(dtype).to(wide)


def make_inputs(dtype):
    linear = make_module(dtype)
    x = torch.randn(SMALL.m, SMALL.k).to(dtype)
    return linear, x, linear.weight.detach().to(dtype), linear.bias.detach().to(dtype)


def assert_close_to_module(ours, expected, dtype):
    """16-bit results are the float32 module's, rounded once; wider ones differ by rounding."""
    assert ours.dtype == dtype
    if dtype.itemsize == 2:
        # The order of the float32 sums is free, so that a tie may fall to the other side.
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(ours.float(), expected, rtol=0.5001 * step, atol=1e-6)
    else:
        rtol = {torch.float64: 1e-13, torch.float32: 2e-6}[dtype]
        torch.testing.assert_close(ours, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear_is_nn_linear(dtype):
    linear, x, weight, bias = make_inputs(dtype)
    expected = linear(x.to(linear.weight.dtype)).detach()
    assert_close_to_module(reference.linear(x, weight, bias), expected, dtype)


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 1.0, 2.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_leaky_relu_is_nn_leaky_relu(dtype, slope):
    linear, x, weight, bias = make_inputs(dtype)
    scale = torch.linspace(-2, 2, SMALL.n).to(dtype)
    z = linear(x.to(linear.weight.dtype)).detach()
    expected = torch.nn.LeakyReLU(slope)(z * scale.to(z.dtype) * 3.0)
    ours = reference.linear_scale_leaky_relu(x, weight, bias, scale, 3.0, slope)
    assert_close_to_module(ours, expected, dtype)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_norm_is_nn_batch_norm_in_eval(dtype, eps, affine):
    linear, x, weight, bias = make_inputs(dtype)
    norm = torch.nn.BatchNorm1d(SMALL.n, eps=eps, affine=affine).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.2, 2.0)
    if affine:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    norm = norm.to(dtype).to(linear.weight.dtype)
    scale = torch.linspace(-2, 2, SMALL.n).to(dtype)
    expected = norm(linear(x.to(linear.weight.dtype)) * scale.to(linear.weight.dtype)).detach()
    vectors = [norm.running_mean, norm.running_var, norm.weight, norm.bias]
    vectors = [None if v is None else v.detach().to(dtype) for v in vectors]
    ours = reference.linear_scale_batch_norm_inference(x, weight, bias, scale, *vectors, eps)
    assert_close_to_module(ours, expected, dtype)


@pytest.mark.parametrize("shape", CPU_SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_shapes(op, numerics, shape):
    check_call(make_call(op, shape, numerics))


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("op", OPS)
def test_layouts(op, layout):
    call = make_call(op, LAYOUT_SHAPE, NUMERICS[1])
    check_call(call.change(x=layout(call.x)))
    if layout in MATRIX_LAYOUTS:
        check_call(call.change(weight=layout(call.weight)))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_bias_and_statistics(numerics, kind):
    check_call(make_call(LINEAR, SMALL, numerics, bias=kind))
    check_call(make_call(BATCH_NORM, SMALL, numerics, bias=kind, scale=kind, vectors=kind))


@pytest.mark.parametrize("kind", SCALE_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_scales(numerics, kind):
    check_call(make_call(LEAKY, SMALL, numerics, scale=kind, multiplier=-1.5))


@pytest.mark.parametrize("slope", [0.1, 0.0, -0.5, 2.0])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_special_values(op, numerics, slope):
    check_call(make_special_call(op, numerics, slope=slope))


def test_default_arguments_are_those_of_the_schemas():
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    z = x @ weight.T
    assert torch.equal(torch.ops.cutlass_fused.linear(x, weight), z)
    leaky = torch.ops.cutlass_fused.linear_scale_leaky_relu(x, weight)
    assert torch.equal(leaky, F.leaky_relu(z, 0.01))
    mean, var = torch.randn(5), torch.rand(5)
    norm = torch.ops.cutlass_fused.linear_scale_batch_norm_inference(
        x, weight, None, None, mean, var
    )
    torch.testing.assert_close(norm, F.batch_norm(z, mean, var, eps=1e-5))


@pytest.mark.parametrize("op", OPS)
def test_float64_takes_no_detour(op):
    """float64 in, float64 arithmetic, float64 out: gradcheck and the judge rest on it."""
    call = make_call(op, SMALL, NUMERICS[4]).in_float64()
    exact = call.run()
    assert exact.dtype == torch.float64
    rounded = call.map_tensors(torch.Tensor.float).run()
    error = (exact - rounded.double()).abs().max()
    assert 0 < error < 1e-3
    nudged = call.change(x=call.x * (1 + 2.0**-40)).run()
    assert not torch.equal(nudged, exact)
