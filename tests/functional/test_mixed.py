"""x of 16 bits beside a weight of float32, on the CPU: values, dtypes, gradients, refusals."""

import pytest
import torch
from calls import LEAKY, LINEAR
from recorded_ops import RecordOps, record_precision
from torch._subclasses import FakeTensorMode

import cutlass_fused
from cutlass_fused import functional, nn

M, N, K = 6, 10, 7
NORM = "linear_scale_batch_norm"
SIXTEEN_BIT = (torch.float16, torch.bfloat16)
OUT_DTYPES = (None, torch.float32)
# Functions of x, weight, bias and scale, with what stands behind the product.
FUNCTIONS = {
    LINEAR: lambda x, weight, bias, scale, **options: functional.linear(x, weight, bias, **options),
    LEAKY: lambda x, weight, bias, scale, **options: functional.linear_scale_leaky_relu(
        x, weight, bias, scale, 0.1, **options
    ),
    NORM: lambda x, weight, bias, scale, **options: functional.linear_scale_batch_norm(
        x, weight, bias, scale, torch.full((N,), 0.5), torch.full((N,), 2.0), **options
    ),
}
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
each_dtype = pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
each_out_dtype = pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)


def make_tensors(dtype, *leading):
    """x, weight, bias, scale."""
    tensors = torch.randn(*leading, M, K).to(dtype), torch.randn(N, K), torch.randn(N)
    return *tensors, torch.tensor(0.7)


def raised_by(function, kind=RuntimeError) -> str:
    with pytest.raises(kind) as raised:
        function()
    return str(raised.value)


# ---- values ----


@each_out_dtype
@each_dtype
@each_function
def test_values_are_those_of_x_in_float32(function, dtype, out_dtype):
    x, *others = make_tensors(dtype, 2) if function is not FUNCTIONS[NORM] else make_tensors(dtype)
    ours = function(x, *others, out_dtype=out_dtype)
    assert ours.dtype == (out_dtype or dtype)
    assert torch.equal(ours, function(x.float(), *others).to(ours.dtype))


@each_dtype
def test_vectors_of_both_dtypes(dtype):
    x, weight, bias, _ = make_tensors(dtype)
    narrow = bias.to(dtype)
    ours = functional.linear(x, weight, narrow)
    assert torch.equal(ours, functional.linear(x, weight, narrow.float()))
    # As PyTorch promotes z * scale: a vector of float32 makes float32 of it.
    scaled = functional.linear_scale_leaky_relu(x, weight, bias, torch.randn(N))
    assert scaled.dtype == torch.float32


@each_dtype
def test_subnormal_and_special_numbers(dtype):
    """Subnormal numbers of 16 bits are normal ones of float32, but for those of bf16."""
    info = torch.finfo(dtype)
    x = torch.tensor([[info.smallest_normal / 4, 1.0], [torch.inf, 1.0], [torch.nan, 0.0]])
    weight = torch.tensor([[2.0**20, 0.0], [1.0, -1.0]])
    ours = functional.linear(x.to(dtype), weight, out_dtype=torch.float32)
    assert torch.equal(ours.isnan(), torch.tensor([[0, 0], [0, 0], [1, 1]]).bool())
    assert ours[0, 0] == info.smallest_normal * 2.0**18
    assert ours[1].isinf().all()


@each_dtype
def test_modules(dtype):
    x = torch.randn(M, K).to(dtype)
    modules = (
        nn.Linear(K, N),
        nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1),
        nn.LinearScaleBatchNorm1d(K, N, ()).eval(),
    )
    with torch.no_grad():
        for module in modules:
            ours = module(x)
            assert ours.dtype == dtype
            assert torch.equal(ours, module(x.float()).to(dtype))


def test_precision_counts():
    x, weight, *_ = make_tensors(torch.bfloat16)
    torch.set_float32_matmul_precision("high")
    assert record_precision(lambda: functional.linear(x, weight)) == ["tf32"]
    assert record_precision(lambda: functional.linear(x, weight, precision="ieee")) == ["ieee"]
    assert record_precision(lambda: functional.linear(x, weight.bfloat16())) == ["ieee"]
    assert cutlass_fused.find_engine(x, weight) == "reference"


# ---- autocast, tracing, transforms ----


@each_dtype
@each_function
def test_autocast_casts_both(function, dtype):
    tensors = make_tensors(torch.float16)
    with torch.autocast("cpu", dtype), torch.no_grad(), RecordOps() as record:
        y = function(*tensors)
    (_, arguments), *_ = record.calls
    assert arguments["x"].dtype == arguments["weight"].dtype == dtype
    assert y.dtype == dtype


@each_out_dtype
@each_dtype
@each_function
def test_fake_and_meta_tensors(function, dtype, out_dtype):
    with FakeTensorMode(), torch.no_grad():
        fake = function(*make_tensors(dtype), out_dtype=out_dtype)
    meta = functional.linear(*(t.to("meta") for t in make_tensors(dtype)[:3]), out_dtype=out_dtype)
    for y in (fake, meta):
        assert (y.shape, y.dtype) == ((M, N), out_dtype or dtype)


@each_dtype
def test_opcheck(dtype):
    x, weight, bias, scale = make_tensors(dtype)
    ops = torch.ops.cutlass_fused
    mean, var = torch.zeros(N), torch.ones(N)
    torch.library.opcheck(ops.linear.default, (x, weight, bias))
    torch.library.opcheck(ops.linear_scale_leaky_relu.default, (x, weight, bias, scale))
    torch.library.opcheck(
        ops.linear_scale_batch_norm_inference.default, (x, weight, bias, scale, mean, var)
    )


def test_vmap():
    x, weight, bias, _ = make_tensors(torch.bfloat16, 3)
    ours = torch.func.vmap(functional.linear, (0, None, None))(x, weight, bias)
    assert torch.equal(ours, functional.linear(x, weight, bias))


def test_compiled():
    x, weight, bias, scale = make_tensors(torch.bfloat16)
    weight.requires_grad_()

    def step(x, weight):
        return functional.linear_scale_leaky_relu(x, weight, bias, 2.0, 0.1)

    expected = step(x, weight)
    (gradient,) = torch.autograd.grad(expected.sum(), weight)
    ours = torch.compile(step, backend="aot_eager", fullgraph=True)(x, weight)
    assert torch.equal(ours, expected)
    assert torch.equal(torch.autograd.grad(ours.sum(), weight)[0], gradient)


# ---- gradients ----


@each_out_dtype
@each_dtype
@each_function
def test_gradients(function, dtype, out_dtype):
    """Each in the dtype of its input, near those of float64. Rows of 16-bit gradients are exact
    numbers: what is lost is the rounding of y's gradient, and of x's."""
    x, weight, bias, scale = (t.requires_grad_() for t in make_tensors(dtype))
    y = function(x, weight, bias, scale, out_dtype=out_dtype)
    grad_y = torch.randn(M, N).to(y.dtype)
    ours = torch.autograd.grad(y, (x, weight, bias, scale), grad_y, allow_unused=True)
    wide = [t.detach().double().requires_grad_() for t in (x, weight, bias, scale)]
    if function is FUNCTIONS[NORM]:
        statistics = torch.full((N,), 0.5).double(), torch.full((N,), 2.0).double()
        z = functional.linear_scale_batch_norm(*wide, *statistics)
    else:
        z = function(*wide)
    truth = torch.autograd.grad(z, wide, grad_y.double(), allow_unused=True)
    for name, ours_of, truth_of, given in zip(
        ("x", "weight", "bias", "scale"), ours, truth, (x, weight, bias, scale), strict=True
    ):
        if truth_of is None:
            assert ours_of is None, name
            continue
        assert ours_of.dtype == given.dtype, name
        rounds = dtype if out_dtype is None or name == "x" else torch.float32
        limit = 4 * torch.finfo(rounds).eps * truth_of.norm()
        assert (ours_of.double() - truth_of).norm() <= limit, name


@each_dtype
def test_wide_gradients_of_a_weight_lose_no_digit(dtype):
    """A float32 gradient of y is not rounded to the 16 bits of x."""
    x, weight, *_ = make_tensors(dtype)
    weight.requires_grad_()
    y = functional.linear(x, weight, out_dtype=torch.float32)
    grad_y = torch.randn(M, N)
    (ours,) = torch.autograd.grad(y, weight, grad_y)
    assert torch.equal(ours, grad_y.t() @ x.float())


@each_dtype
def test_one_gradient_at_a_time(dtype):
    x, weight, *_ = make_tensors(dtype)
    for wanted in (x.requires_grad_(), weight.requires_grad_()):
        others = [t.detach() if t is not wanted else t for t in (x, weight)]
        (gradient,) = torch.autograd.grad(functional.linear(*others).sum(), wanted)
        assert (gradient.shape, gradient.dtype) == (wanted.shape, wanted.dtype)


# ---- refusals ----


@each_function
def test_other_mixtures(function):
    x, weight, bias, scale = make_tensors(torch.bfloat16)
    op = next(name for name, each in FUNCTIONS.items() if each is function)
    refused = {
        "weight must be bfloat16 (the dtype of x) or float32, got float16": (x, weight.half()),
        "weight must be bfloat16 (the dtype of x) or float32, got float64": (x, weight.double()),
        "weight must have the dtype of x, float32, got bfloat16": (x.float(), weight.bfloat16()),
        "weight must have the dtype of x, float64, got float32": (x.double(), weight),
    }
    for message, matrices in refused.items():
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                assert raised_by(lambda m=matrices: function(*m, bias, scale)) == f"{op}: {message}"


@pytest.mark.parametrize("grad", [False, True])
def test_functions_that_refuse_it(grad):
    """Batch statistics, and what a softmax follows."""
    x, weight, bias, scale = make_tensors(torch.float16)
    weight.requires_grad_(grad)
    statistics = torch.zeros(N), torch.ones(N)
    message = "weight must have the dtype of x, float16, got float32"
    norm, softmax = functional.linear_scale_batch_norm, functional.linear_batch_norm_scale_softmax
    for function, training in ((norm, True), (softmax, False), (softmax, True)):
        arguments = (x, weight, bias, scale, *statistics, None, None, training)
        found = raised_by(lambda f=function, a=arguments: f(*a))
        assert found == f"{function.__name__}: {message}"
    assert torch.equal(statistics[0], torch.zeros(N))
