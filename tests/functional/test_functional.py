"""The functions: conventions of PyTorch for scale, dtypes, precision and autocast."""

import pytest
import torch
from calls import LEAKY, LINEAR, OPS
from cases import IEEE, SHAPES, make_call
from plain import run_plain
from recorded_ops import RecordOps, record_precision
from torch.nn import functional as F

from cutlass_fused import functional

pytestmark = pytest.mark.usefixtures("language")

SIXTEEN_BIT = (torch.float16, torch.bfloat16)
ALL_DTYPES = (torch.float64, torch.float32, *SIXTEEN_BIT)


def make_tensors(dtype, m=6, n=10, k=7):
    return (
        torch.randn(m, k).to(dtype),
        torch.randn(n, k).to(dtype),
        torch.randn(n).to(dtype),
    )


def assert_near(ours, expected, dtype):
    """Near enough for arithmetic in `dtype`: tells arguments apart; the judge decides accuracy."""
    tolerance = {2: 0.06, 4: 1e-5, 8: 1e-12}[dtype.itemsize]
    atol = 4 * tolerance
    torch.testing.assert_close(ours.double(), expected.double(), rtol=tolerance, atol=atol)


# ---- values ----


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_linear(dtype, with_bias):
    x, weight, bias = make_tensors(dtype)
    bias = bias if with_bias else None
    ours = functional.linear(x, weight, bias)
    assert ours.dtype == dtype
    assert_near(ours, F.linear(x, weight, bias), dtype)


@pytest.mark.parametrize("slope", [0.01, 0.1, 0.0, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("scale", [1.0, 2.5, 0.0, -1.5, 3, True])
def test_scale_as_number(scale, slope):
    x, weight, bias = make_tensors(torch.float32)
    ours = functional.linear_scale_leaky_relu(x, weight, bias, scale, slope)
    assert_near(ours, run_plain(x, weight, bias, scale, slope), torch.float32)


@pytest.mark.parametrize("slope", [0.1, -0.5])
@pytest.mark.parametrize("shape", [(), (1,), (10,)], ids=str)
def test_scale_as_tensor(shape, slope):
    x, weight, bias = make_tensors(torch.float32)
    scale = torch.randn(shape) - 0.5
    ours = functional.linear_scale_leaky_relu(x, weight, bias, scale, slope)
    assert_near(ours, run_plain(x, weight, bias, scale, slope), torch.float32)


def test_defaults():
    x, weight, _ = make_tensors(torch.float64)
    ours = functional.linear_scale_leaky_relu(x, weight)
    assert_near(ours, F.leaky_relu(x @ weight.T, 0.01), torch.float64)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)], ids=str)
def test_leading_dimensions(leading):
    x = torch.randn(*leading, 7)
    _, weight, bias = make_tensors(torch.float32)
    assert_near(functional.linear(x, weight, bias), F.linear(x, weight, bias), torch.float32)
    ours = functional.linear_scale_leaky_relu(x, weight, bias, 2.0, 0.1)
    assert ours.shape == (*leading, 10)
    assert_near(ours, run_plain(x, weight, bias, 2.0, 0.1), torch.float32)


# ---- dtype of the result ----

SCALES = {
    "number": lambda dtype: 2.0,
    "0-dim": lambda dtype: torch.tensor(2.0, dtype=dtype),
    "0-dim fp32": lambda dtype: torch.tensor(2.0),
    "(1,)": lambda dtype: torch.tensor([2.0], dtype=dtype),
    "(1,) fp32": lambda dtype: torch.tensor([2.0]),
    "(N,)": lambda dtype: torch.full((10,), 2.0, dtype=dtype),
    "(N,) fp32": lambda dtype: torch.full((10,), 2.0),
}


@pytest.mark.parametrize("make_scale", SCALES.values(), ids=SCALES.keys())
@pytest.mark.parametrize("leading", [(6,), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN_BIT], ids=str)
def test_dtype_is_that_of_the_expression(dtype, leading, make_scale):
    _, weight, bias = make_tensors(dtype)
    x, scale = torch.randn(*leading, 7).to(dtype), make_scale(dtype)
    expected = run_plain(x, weight, bias, scale, 0.1)
    ours = functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1)
    assert ours.dtype == expected.dtype
    assert_near(ours, expected, dtype)
    with_grad = functional.linear_scale_leaky_relu(x, weight.requires_grad_(), bias, scale, 0.1)
    assert with_grad.dtype == expected.dtype


@pytest.mark.parametrize("bias_dtype", [None, torch.float32])
@pytest.mark.parametrize("out_dtype", [None, "own", torch.float32], ids=str)
@pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
def test_out_dtype(dtype, out_dtype, bias_dtype):
    x, weight, bias = make_tensors(dtype)
    bias = bias.to(bias_dtype or dtype)
    out_dtype = dtype if out_dtype == "own" else out_dtype
    scale = torch.full((10,), 1.5, dtype=dtype)
    for result in (
        functional.linear(x, weight, bias, out_dtype=out_dtype),
        functional.linear_scale_leaky_relu(x, weight, bias, scale, 1.0, out_dtype=out_dtype) / 1.5,
    ):
        assert result.dtype == (out_dtype or dtype)
        assert_near(result, F.linear(x.float(), weight.float(), bias.float()), dtype)


def test_float32_result_is_not_rounded_to_16_bits():
    x, weight, bias = make_tensors(torch.bfloat16)
    wide = functional.linear_scale_leaky_relu(x, weight, bias, 1.1, 0.1, out_dtype=torch.float32)
    assert not torch.equal(wide, wide.bfloat16().float())
    expected = run_plain(x.float(), weight.float(), bias.float(), 1.1, 0.1)
    torch.testing.assert_close(wide, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
def test_explicit_out_dtype_wins_over_promotion(dtype):
    x, weight, bias = make_tensors(dtype)
    scale = torch.ones(10)
    ours = functional.linear_scale_leaky_relu(x, weight, bias, scale, out_dtype=dtype)
    assert ours.dtype == dtype


# ---- what reaches the op ----


def test_scale_tensor_is_not_read_back():
    """A number goes into the kernel's arguments; a tensor goes on as that tensor."""
    x, weight, bias = make_tensors(torch.float32)
    scale = torch.tensor(2.0)
    with torch.no_grad(), RecordOps() as record:
        functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1)
        functional.linear_scale_leaky_relu(x, weight, bias, -3, 0.1)
    (name, with_tensor), (_, with_number) = record.calls
    assert name == LEAKY
    assert with_tensor["scale"] is scale and with_tensor["multiplier"] == 1.0
    assert with_number["scale"] is None and with_number["multiplier"] == -3.0


@pytest.mark.parametrize("why", ["no_grad", "nothing asks"])
def test_without_gradients_a_call_is_one_op(why):
    """The cost of the autograd.Function, and of what it keeps, is paid only for gradients."""
    x, weight, bias = make_tensors(torch.float32)
    scale = torch.randn(10)
    weight.requires_grad_(why == "no_grad")
    with torch.set_grad_enabled(why != "no_grad"), RecordOps() as record:
        functional.linear(x, weight, bias)
        functional.linear_scale_leaky_relu(x, weight, bias, 2.0)
        functional.linear_scale_leaky_relu(x, weight, bias, scale)
    computing = [name for name in record.names if name != "promote_types"]
    assert computing == [LINEAR, LEAKY, LEAKY]


def test_no_graph_where_no_gradient_is_asked_for():
    x, weight, bias = make_tensors(torch.float32)
    weight.requires_grad_()
    for function in (functional.linear, functional.linear_scale_leaky_relu):
        assert function(x, weight, bias).requires_grad
        assert not function(x, weight.detach(), bias).requires_grad
        with torch.no_grad():
            assert not function(x, weight, bias).requires_grad
        with torch.inference_mode():
            assert function(x, weight, bias).is_inference()


# ---- precision ----


def resolved(precision=None):
    x, weight, bias = make_tensors(torch.float32)
    linear = record_precision(lambda: functional.linear(x, weight, bias, precision=precision))
    leaky = record_precision(
        lambda: functional.linear_scale_leaky_relu(x, weight, bias, precision=precision)
    )
    assert linear == leaky and len(linear) == 1
    return linear[0]


def set_old(word):
    return lambda: torch.set_float32_matmul_precision(word)


def set_allow(value):
    return lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", value)


def set_new(word):
    return lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", word)


def set_general(word):
    def set_both():
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.fp32_precision = word

    return set_both


SETTINGS = {
    "untouched": (lambda: None, "ieee"),
    "old highest": (set_old("highest"), "ieee"),
    "old high": (set_old("high"), "tf32"),
    "old medium": (set_old("medium"), "tf32"),
    "allow_tf32": (set_allow(True), "tf32"),
    "not allow_tf32": (set_allow(False), "ieee"),
    "new ieee": (set_new("ieee"), "ieee"),
    "new tf32": (set_new("tf32"), "tf32"),
    "new none": (set_new("none"), "ieee"),
    "general tf32": (set_general("tf32"), "tf32"),
    "general ieee": (set_general("ieee"), "ieee"),
}


@pytest.mark.parametrize(("apply", "expected"), SETTINGS.values(), ids=SETTINGS.keys())
def test_none_follows_pytorch(apply, expected):
    apply()
    assert resolved() == expected


@pytest.mark.parametrize("first", SETTINGS)
@pytest.mark.parametrize("second", [name for name in SETTINGS if not name.startswith("general")])
def test_the_last_setter_decides(first, second):
    """Old and new setters in either order: reading `allow_tf32` would raise after a mixture."""
    SETTINGS[first][0]()
    if second == "untouched":
        expected = SETTINGS[first][1]
    else:
        SETTINGS[second][0]()
        # "none" hands the decision to the general setting.
        follows = second == "new none" and torch.backends.fp32_precision == "tf32"
        expected = "tf32" if follows else SETTINGS[second][1]
    assert resolved() == expected


@pytest.mark.parametrize("setting", ["ieee", "tf32"])
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_a_word_wins_over_pytorch(precision, setting):
    torch.backends.cuda.matmul.fp32_precision = setting
    assert resolved(precision) == precision


def test_backward_uses_the_precision_of_forward(in_python):
    """The setting may change between forward and backward; what was asked for stays."""
    x, weight, bias = (t.requires_grad_() for t in make_tensors(torch.float32))
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    y = functional.linear_scale_leaky_relu(x, weight, bias, 2.0, 0.1)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert y.grad_fn.precision == "tf32"
    y.sum().backward()


# ---- autocast ----


# A scale has the dtype of the cast x or float32; the other 16-bit dtype is bad input.
AUTOCAST_CASES = [
    pytest.param(dtype, cast, make_scale, id=f"{dtype}-{cast}-{name}")
    for dtype in (torch.float32, *SIXTEEN_BIT)
    for cast in SIXTEEN_BIT
    for name, make_scale in SCALES.items()
    if dtype in (torch.float32, cast) or name == "number" or name.endswith("fp32")
]


@pytest.mark.parametrize(("dtype", "cast", "make_scale"), AUTOCAST_CASES)
def test_autocast_gives_the_plain_dtype(dtype, cast, make_scale):
    x, weight, bias = make_tensors(dtype)
    scale = make_scale(dtype)
    with torch.autocast("cpu", dtype=cast):
        expected = run_plain(x, weight, bias, scale, 0.1)
        ours = functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1)
        linear = functional.linear(x, weight, bias)
    assert ours.dtype == expected.dtype
    assert linear.dtype == cast
    assert_near(ours, expected, cast)
    assert_near(linear, F.linear(x.to(cast), weight.to(cast), bias.to(cast)), cast)


def test_autocast_leaves_float64_alone():
    x, weight, bias = make_tensors(torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = F.linear(x, weight, bias)
        ours = functional.linear(x, weight, bias)
    assert ours.dtype == expected.dtype == torch.float64
    assert_near(ours, expected, torch.float64)


def test_autocast_casts_matrices_and_never_scale():
    x, weight, bias = make_tensors(torch.float32)
    scale = torch.randn(10)
    with (
        torch.no_grad(),
        torch.autocast("cpu", dtype=torch.bfloat16),
        RecordOps() as record,
    ):
        functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1)
    ((_, arguments),) = record.calls
    assert {arguments[name].dtype for name in ("x", "weight", "bias")} == {torch.bfloat16}
    assert arguments["scale"] is scale


def test_autocast_of_another_device_changes_nothing():
    x, weight, bias = make_tensors(torch.float32)
    with torch.autocast("cuda", dtype=torch.float16, enabled=torch.cuda.is_available()):
        assert functional.linear(x, weight, bias).dtype == torch.float32


def test_gradients_under_autocast_have_the_dtype_of_their_inputs():
    x, weight, bias = (t.requires_grad_() for t in make_tensors(torch.float32))
    scale = torch.randn(10, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = functional.linear_scale_leaky_relu(x, weight, bias, scale, 0.1)
    y.sum().backward()
    leaves = (x, weight, bias, scale)
    ours = [leaf.grad.clone() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = run_plain(x, weight, bias, scale, 0.1)
    expected.sum().backward()
    for leaf, grad in zip(leaves, ours, strict=True):
        assert grad.dtype == leaf.grad.dtype == torch.float32
        torch.testing.assert_close(grad, leaf.grad, rtol=0.05, atol=0.2)


@pytest.mark.parametrize("op", OPS)
def test_raw_ops_know_nothing_of_autocast(op):
    """Not even in the product inside the CPU kernel: a CUDA kernel would not notice it either."""
    call = make_call(op, SHAPES[1], IEEE)
    expected = call.run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(call.run(), expected)
