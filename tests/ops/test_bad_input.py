"""Bad input ends in one message that says what was expected and what was found."""

import pytest
import torch
from bad_calls import K, M, N, list_bad_calls, list_wrong_dtypes, make_bad_scales, make_good
from calls import ALL_OPS, LEAKY, LINEAR, TRAIN_OPS, name_in_messages
from torch._subclasses.fake_tensor import FakeTensorMode

from cutlass_fused import functional

IDS, BAD = zip(*list_bad_calls(), strict=True)
bad_calls = pytest.mark.parametrize(("op", "dtype", "bad", "message"), BAD, ids=IDS)


def raised_by(function, kind=RuntimeError):
    with pytest.raises(kind) as error:
        function()
    return str(error.value)


@pytest.mark.parametrize("op", ALL_OPS)
def test_good_calls_are_good(op):
    """Otherwise nothing below would show anything."""
    for dtype in (torch.float16, torch.float32):
        assert make_good(op, "cpu", dtype).run_all()["y"].shape == (M, N)


@bad_calls
def test_cpu(op, dtype, bad, message):
    call = bad.spoil(make_good(op, "cpu", dtype))
    assert raised_by(call.run) == message


@pytest.mark.parametrize(
    ("op", "dtype", "bad", "message"),
    [case for case in BAD if case[0] in TRAIN_OPS],
    ids=[name for name, case in zip(IDS, BAD, strict=True) if case[0] in TRAIN_OPS],
)
def test_refused_calls_update_nothing(op, dtype, bad, message):
    call = bad.spoil(make_good(op, "cpu", dtype))
    before = {name: tensor.clone() for name, tensor in call.updated().items()}
    raised_by(call.run)
    for name, tensor in call.updated().items():
        assert torch.equal(tensor, before[name]), name


@bad_calls
def test_reference(op, dtype, bad, message):
    call = bad.spoil(make_good(op, "cpu", dtype))
    assert raised_by(call.refer) == message


@bad_calls
def test_meta(op, dtype, bad, message):
    call = bad.spoil(make_good(op, "meta", dtype))
    assert raised_by(call.run) == message


@bad_calls
def test_fake(op, dtype, bad, message):
    mode = FakeTensorMode()
    fake = bad.spoil(make_good(op, "cpu", dtype)).map_tensors(mode.from_tensor)
    with mode:
        assert message in raised_by(fake.run)


@pytest.mark.parametrize("dtype", list_wrong_dtypes(), ids=str)
@pytest.mark.parametrize("op", ALL_OPS)
def test_dtype_of_the_matrices(op, dtype):
    call = make_good(op, "cpu").map_tensors(lambda tensor: tensor.to(dtype))
    expected = f"x must be float16, bfloat16, float32 or float64, got {str(dtype)[6:]}"
    assert raised_by(call.run) == f"{name_in_messages(op)}: {expected}"


def test_cuda_has_no_float64_while_tracing():
    """The fake of a CUDA tensor refuses what the CUDA kernel refuses."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty_strided((M, K), (K, 1), dtype=torch.float64, device="meta")
    fake = torch._subclasses.fake_tensor.FakeTensor(FakeTensorMode(), x, torch.device("cuda:0"))
    message = raised_by(lambda: torch.ops.cutlass_fused.linear(fake, fake))
    assert "linear: x must be float16, bfloat16 or float32, got float64" in message


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in ALL_OPS for name in make_good(op, "cpu").tensors() if name != "x"],
)
def test_mixed_devices(op, name):
    call = make_good(op, "meta")
    call = call.change(**{name: torch.ones_like(getattr(call, name), device="cpu")})
    expected = f"{name_in_messages(op)}: {name} must be on the device of x, meta, got cpu"
    assert raised_by(call.refer) == expected


# ---- functional ----

FUNCTIONS = {
    LINEAR: functional.linear,
    LEAKY: functional.linear_scale_leaky_relu,
}
each_function = pytest.mark.parametrize(("op", "function"), FUNCTIONS.items(), ids=FUNCTIONS)


@pytest.mark.parametrize("word", ["fp8", "", "IEEE", "highest", "none"])
@each_function
def test_unknown_precision(op, function, word):
    x, weight = torch.ones(M, K), torch.ones(N, K)
    message = raised_by(lambda: function(x, weight, precision=word), ValueError)
    assert message == f"{op}: precision must be 'ieee', 'tf32' or None, got {word!r}"


@each_function
def test_precision_is_checked_for_every_dtype(op, function):
    x, weight = torch.ones(M, K).half(), torch.ones(N, K).half()
    raised_by(lambda: function(x, weight, precision="fp8"), ValueError)


@each_function
def test_no_tensors(op, function):
    tensor = torch.ones(M, K)
    message = raised_by(lambda: function([[1.0]], tensor), TypeError)
    assert message == f"{op}: x must be a tensor, got list"
    message = raised_by(lambda: function(tensor, None), TypeError)
    assert message == f"{op}: weight must be a tensor, got NoneType"
    message = raised_by(lambda: function(tensor, torch.ones(N, M), [0.0] * N), TypeError)
    assert message == f"{op}: bias must be a tensor or None, got list"


@pytest.mark.parametrize("slope", [None, "0.1", torch.ones(2)])
def test_slope_of_a_wrong_kind(slope):
    x, weight = torch.ones(M, K), torch.ones(N, K)
    message = raised_by(
        lambda: functional.linear_scale_leaky_relu(x, weight, None, 1.0, slope), TypeError
    )
    expected = f"negative_slope must be a number, got {type(slope).__name__}"
    assert message == f"linear_scale_leaky_relu: {expected}"


# A row of columns beside a matrix is served.
BAD_SCALES = [bad for bad in make_bad_scales() if "shape (1, " not in bad.name]


@pytest.mark.parametrize("bad", BAD_SCALES, ids=lambda bad: bad.name)
def test_message_about_a_scale_that_asks_for_a_gradient(bad):
    """Then another op computes the product, and the tail is applied behind it."""
    call = bad.spoil(make_good(LEAKY, "cpu", torch.float16))
    scale = call.scale.requires_grad_()
    message = raised_by(
        lambda: functional.linear_scale_leaky_relu(call.x, call.weight, call.bias, scale)
    )
    assert message == f"{LEAKY}: {bad.message}"


@pytest.mark.parametrize("size", [(), (3,), (2, N, K)], ids=str)
@pytest.mark.parametrize("scale", [False, True], ids=["", "scale asks"])
@each_function
def test_weight_that_is_no_matrix(op, function, scale, size):
    options = {"scale": torch.ones(N, requires_grad=scale)} if op == LEAKY else {}
    message = raised_by(lambda: function(torch.ones(M, K), torch.ones(size), **options))
    assert message == f"{op}: weight must have 2 dimensions (N, K), got shape {size}"


@pytest.mark.parametrize("shape", [(N,), (M, 1), (M, N)], ids=str)
def test_messages_where_other_ops_compute(shape):
    """A product that is another op's, as of a scale with rows, is refused in the caller's name."""
    x, weight = torch.ones(M, K), torch.ones(N, K)
    scale = torch.ones(shape, requires_grad=True)
    calls = {
        f"x must have {K + 1} columns, as weight ({N}, {K + 1}) has, got ({M}, {K})": (
            torch.ones(N, K + 1),
            None,
        ),
        f"bias must have shape (N,) = ({N},), got ({N + 1},)": (weight, torch.ones(N + 1)),
        "weight must have the dtype of x, float32, got float64": (weight.double(), None),
    }
    for expected, arguments in calls.items():
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                message = raised_by(
                    lambda a=arguments: functional.linear_scale_leaky_relu(x, *a, scale)
                )
            assert message == f"linear_scale_leaky_relu: {expected}"


@pytest.mark.parametrize("out_dtype", [torch.int32, torch.float64, torch.float16])
def test_out_dtype_beside_a_scale_that_asks_for_a_gradient(out_dtype):
    x, weight, scale = torch.ones(M, K), torch.ones(N, K), torch.ones(N, requires_grad=True)
    message = raised_by(
        lambda: functional.linear_scale_leaky_relu(x, weight, scale=scale, out_dtype=out_dtype)
    )
    expected = f"out_dtype must be float32 (the dtype of x), got {str(out_dtype)[6:]}"
    assert message == f"linear_scale_leaky_relu: {expected}"


@each_function
def test_options_are_keyword_only(op, function):
    x, weight = torch.ones(M, K), torch.ones(N, K)
    positional = 3 if op == LINEAR else 5
    arguments = (x, weight, None, 1.0, 0.1)[:positional]
    function(*arguments)
    raised_by(lambda: function(*arguments, "ieee"), TypeError)


@pytest.mark.parametrize("scale", [None, "2.0", [1.0], 1j])
def test_scale_of_a_wrong_kind(scale):
    x, weight = torch.ones(M, K), torch.ones(N, K)
    message = raised_by(
        lambda: functional.linear_scale_leaky_relu(x, weight, scale=scale), TypeError
    )
    expected = f"scale must be a number or a tensor, got {type(scale).__name__}"
    assert message == f"linear_scale_leaky_relu: {expected}"


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@each_function
def test_messages_of_the_op_come_through(op, function, grad):
    x, weight = torch.ones(M, K), torch.ones(N, K + 1, requires_grad=grad)
    message = raised_by(lambda: function(x, weight))
    has = f"as weight ({N}, {K + 1}) has, got ({M}, {K})"
    assert message == f"{op}: x must have {K + 1} columns, {has}"
    message = raised_by(lambda: function(x, weight[:, :K], torch.ones(N + 1)))
    assert message == f"{op}: bias must have shape (N,) = ({N},), got ({N + 1},)"


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_message_about_scale_comes_through(grad):
    x, weight = torch.ones(M, K), torch.ones(N, K, requires_grad=grad)
    message = raised_by(
        lambda: functional.linear_scale_leaky_relu(x, weight, scale=torch.ones(N - 1))
    )
    expected = f"scale must have one element or shape (N,) = ({N},), got ({N - 1},)"
    assert message == f"linear_scale_leaky_relu: {expected}"
