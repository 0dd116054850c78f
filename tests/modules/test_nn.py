"""The modules: drop-in for the plain ones, in parameters, state dicts, copies and training."""

import copy
import io
import pickle

import pytest
import torch
from plain import PlainLinearScaleLeakyReLU
from recorded_ops import RecordOps, record_precision

from cutlass_fused import nn

pytestmark = pytest.mark.usefixtures("language")

IN, OUT = 12, 20


def make_plain(bias=True):
    return PlainLinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, bias)


def make_fused(bias=True, **options):
    return nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, bias=bias, **options)


PAIRS = {
    "Linear": (lambda bias: torch.nn.Linear(IN, OUT, bias), lambda bias: nn.Linear(IN, OUT, bias)),
    "LinearScaleLeakyReLU": (make_plain, make_fused),
}
pairs = pytest.mark.parametrize(("plain", "fused"), PAIRS.values(), ids=PAIRS.keys())
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def build_under_seed(make, bias):
    torch.manual_seed(7)
    return make(bias)


@pairs
@with_and_without_bias
def test_same_seed_same_parameters(plain, fused, bias):
    a, b = build_under_seed(plain, bias), build_under_seed(fused, bias)
    state = torch.get_rng_state()
    build_under_seed(plain, bias)
    assert torch.equal(torch.get_rng_state(), state)  # nothing else was drawn
    assert list(a.state_dict()) == list(b.state_dict())
    for name, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[name])


@pairs
@with_and_without_bias
def test_state_dict_loads_strictly_both_ways(plain, fused, bias):
    a, b = plain(bias), fused(bias)
    x = torch.randn(5, IN)
    b.load_state_dict(a.state_dict(), strict=True)
    torch.testing.assert_close(b(x), a(x))
    c = plain(bias)
    c.load_state_dict(b.state_dict(), strict=True)
    assert torch.equal(c(x), a(x))
    with pytest.raises(RuntimeError, match="Missing key|Unexpected key"):
        fused(not bias).load_state_dict(a.state_dict(), strict=True)


@pairs
@with_and_without_bias
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_forward_is_that_of_the_plain_model(plain, fused, bias, dtype):
    a, b = build_under_seed(plain, bias).to(dtype), build_under_seed(fused, bias).to(dtype)
    for leading in ((), (5,), (2, 3), (0,)):
        x = torch.randn(*leading, IN, dtype=dtype)
        expected, ours = a(x), b(x)
        assert ours.dtype == expected.dtype and ours.shape == expected.shape
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


@pairs
def test_training_step_is_that_of_the_plain_model(plain, fused):
    x, target = torch.randn(8, IN), torch.randn(8, OUT)
    results = []
    for make in (plain, fused):
        module = build_under_seed(make, True)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(module(x), target).backward()
            optimizer.step()
        results.append(list(module.parameters()))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


@pairs
def test_new_parameters_are_used_at_once(plain, fused):
    """However the weight is changed, no earlier result or earlier weight comes back."""
    module, other, x = fused(True), plain(True), torch.randn(5, IN)

    def assert_follows(reference):
        torch.testing.assert_close(module(x), reference(x), rtol=1e-5, atol=1e-5)

    module(x)
    module.load_state_dict(other.state_dict())
    assert_follows(other)
    for change in (
        lambda weight: weight.data.mul_(-1.5),
        lambda weight: weight.data.copy_(torch.randn(OUT, IN)),
        lambda weight: setattr(weight, "data", torch.randn(OUT, IN)),
    ):
        change(next(module.parameters()))
        other.load_state_dict(module.state_dict())
        assert_follows(other)


def test_gemm_is_a_real_linear():
    module = make_fused()
    assert type(module.gemm) is torch.nn.Linear
    assert [name for name, _ in module.named_parameters()] == ["gemm.weight", "gemm.bias"]
    assert isinstance(nn.Linear(IN, OUT), torch.nn.Linear)


@pairs
def test_device_and_dtype(plain, fused):
    kind = nn.Linear if plain is PAIRS["Linear"][0] else nn.LinearScaleLeakyReLU
    arguments = (IN, OUT) if kind is nn.Linear else (IN, OUT, 2.0, 0.1)
    module = kind(*arguments, device="meta", dtype=torch.bfloat16)
    for parameter in module.parameters():
        assert parameter.device.type == "meta" and parameter.dtype == torch.bfloat16
    y = module(torch.empty(5, IN, device="meta", dtype=torch.bfloat16))
    assert y.shape == (5, OUT) and y.dtype == torch.bfloat16 and y.device.type == "meta"
    assert {p.dtype for p in fused(True).half().parameters()} == {torch.float16}


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, True)
    with pytest.raises(TypeError):
        nn.Linear(IN, OUT, True, "ieee")


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_precision_of_the_module_reaches_the_op(precision):
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "ieee" else "ieee"
    x = torch.randn(5, IN)
    for module in (nn.Linear(IN, OUT, precision=precision), make_fused(precision=precision)):
        assert record_precision(lambda module=module: module(x)) == [precision]


def test_scale_of_the_module_is_a_number():
    with torch.no_grad(), RecordOps() as record:
        make_fused()(torch.randn(5, IN))
    ((_, arguments),) = record.calls
    assert arguments["scale"] is None
    assert (arguments["multiplier"], arguments["negative_slope"]) == (2.0, 0.1)


# ---- from_eager ----


@with_and_without_bias
@pytest.mark.parametrize("slope", [0.1, torch.nn.LeakyReLU(0.1)], ids=["number", "LeakyReLU"])
def test_from_eager_shares(slope, bias):
    plain = make_plain(bias)
    module = nn.LinearScaleLeakyReLU.from_eager(plain.gemm, 2.0, slope, precision="ieee")
    assert module.gemm is plain.gemm
    assert module.precision == "ieee"
    x = torch.randn(5, IN)
    torch.testing.assert_close(module(x), plain(x))
    with torch.no_grad():
        plain.gemm.weight.mul_(2.0)
    torch.testing.assert_close(module(x), plain(x))
    plain.load_state_dict(module.state_dict(), strict=True)


@with_and_without_bias
def test_linear_from_eager_shares(bias):
    plain = torch.nn.Linear(IN, OUT, bias, dtype=torch.float64)
    plain.weight.requires_grad_(False)
    module = nn.Linear.from_eager(plain, precision="tf32")
    assert module.weight is plain.weight and module.bias is plain.bias
    assert (module.in_features, module.out_features, module.precision) == (IN, OUT, "tf32")
    x = torch.randn(5, IN, dtype=torch.float64)
    torch.testing.assert_close(module(x), plain(x))
    assert list(module.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_from_eager_keeps_the_mode_and_draws_nothing(training):
    plain = torch.nn.Linear(IN, OUT).train(training)
    state = torch.get_rng_state()
    assert nn.Linear.from_eager(plain).training == training
    assert nn.LinearScaleLeakyReLU.from_eager(plain, 2.0, 0.1).training == training
    assert torch.equal(torch.get_rng_state(), state)


def test_from_eager_takes_a_linear_only():
    for build in (nn.Linear.from_eager, lambda m: nn.LinearScaleLeakyReLU.from_eager(m, 2.0, 0.1)):
        with pytest.raises(TypeError, match=r"must be a torch\.nn\.Linear, got ReLU"):
            build(torch.nn.ReLU())


def test_parameters_of_a_wrong_kind():
    with pytest.raises(TypeError, match="multiplier must be a number, got str"):
        nn.LinearScaleLeakyReLU(IN, OUT, "2", 0.1)
    with pytest.raises(TypeError, match="negative_slope must be a number, got NoneType"):
        nn.LinearScaleLeakyReLU(IN, OUT, 2.0, None)
    for build in (
        lambda: nn.Linear(IN, OUT, precision="fp8"),
        lambda: make_fused(precision="fp8"),
        lambda: nn.Linear.from_eager(torch.nn.Linear(IN, OUT), precision="fp8"),
    ):
        with pytest.raises(ValueError, match="'ieee', 'tf32' or None, got 'fp8'"):
            build()


# ---- copies ----


@pairs
def test_copies_are_independent(plain, fused):
    module, x = fused(True), torch.randn(5, IN)
    expected = module(x).detach()

    def save_and_load(module):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    for duplicate in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), save_and_load):
        twin = duplicate(module)
        assert type(twin) is type(module) and repr(twin) == repr(module)
        assert torch.equal(twin(x), expected)
        with torch.no_grad():
            next(twin.parameters()).zero_()
        assert torch.equal(module(x), expected)


def test_repr_tells_the_options():
    text = repr(make_fused(precision="tf32"))
    for part in ("multiplier=2.0", "negative_slope=0.1", "precision='tf32'", "in_features=12"):
        assert part in text
    text = repr(nn.Linear(IN, OUT, bias=False, precision="ieee"))
    for part in ("in_features=12", "out_features=20", "bias=False", "precision='ieee'"):
        assert part in text


@pairs
def test_autocast_gives_the_plain_dtype(plain, fused):
    a, b, x = build_under_seed(plain, True), build_under_seed(fused, True), torch.randn(5, IN)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            expected, ours = a(x), b(x)
        assert ours.dtype == expected.dtype == dtype
        torch.testing.assert_close(ours, expected, rtol=0.03, atol=0.03)
