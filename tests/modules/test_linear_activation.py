"""LinearActivation beside a torch.nn.Linear and what follows it."""

import copy
import functools
import pickle

import pytest
import torch
from activations import IN, MODULES, NAMES, OTHERS, OUT, M, Scaled, cube, make_pair
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.programs.common import FUNCTIONS


def differentiate(run, leaves):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    y = run(*leaves)
    grad = torch.linspace(-1, 1, y.shape[-1]).to(y.dtype).expand_as(y)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def run_ours(ours):
    names = [name for name, _ in ours.named_parameters()]

    def run(x, *values):
        return torch.func.functional_call(ours, dict(zip(names, values, strict=True)), (x,))

    return run


def run_plain(activation, bias):
    """Of the same leaves: x, weight, bias if there is one, and the weight of a PReLU."""

    def run(x, weight, *others):
        z = F.linear(x, weight, others[0] if bias else None)
        return F.prelu(z, others[-1]) if isinstance(activation, torch.nn.PReLU) else activation(z)

    return run


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, bias):
    """In float64 those of PyTorch; in fp32 no further from them than twice PyTorch's own."""
    assert NAMES.keys() == FUNCTIONS.keys()
    plain, given = NAMES[name]
    ours = nn.LinearActivation(IN, OUT, name, bias, **given)
    leaves = [torch.randn(M, IN), *ours.parameters()]
    narrow = differentiate(run_ours(ours), leaves)
    eager = differentiate(run_plain(plain, bias), leaves)
    leaves = [leaf.double() for leaf in leaves]
    wide = differentiate(run_ours(ours.double()), leaves)
    truth = differentiate(run_plain(plain, bias), leaves)
    for y, exact in zip(wide, truth, strict=True):
        torch.testing.assert_close(y, exact, rtol=1e-12, atol=1e-13)
    for y, of_eager, exact in zip(narrow, eager, truth, strict=True):
        floor = torch.finfo(torch.float32).eps * exact.norm()
        assert (y - exact).norm() <= 2 * (of_eager - exact).norm() + floor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_other_activations(name, dtype):
    ours, linear, plain = make_pair(OTHERS[name], dtype)
    torch.manual_seed(5)
    for leading in ((), (M,), (2, 3), (0,)):
        x = torch.randn(*leading, IN).to(dtype)
        expected, y = plain(linear(x)), ours(x)
        assert y.shape == expected.shape and y.dtype == dtype
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_names(name):
    """Of them the numbers are taken; a PReLU is held."""
    plain = MODULES[name]
    ours = nn.LinearActivation(IN, OUT, plain)
    if name == "prelu":
        assert ours.activation is plain
        return
    assert ours.activation == name
    _, given = NAMES[name]
    assert ours.numbers == given
    expected = nn.LinearActivation(IN, OUT, name, **given)
    assert repr(ours) == repr(expected)


def test_several_parameters_of_a_prelu():
    """PyTorch's second dimension has them."""
    ours, linear, plain = make_pair("prelu", given={"num_parameters": 3}, plain=torch.nn.PReLU(3))
    with torch.no_grad():
        ours.activation.weight.copy_(torch.tensor([0.1, 0.5, -2.0]))
    plain.load_state_dict(ours.activation.state_dict())
    x = torch.randn(2, 3, IN)
    torch.testing.assert_close(ours(x), plain(linear(x)))
    with pytest.raises(RuntimeError, match=r"prelu: slope must have shape \(\), \(20,\)"):
        ours(x[0])
    one, linear, plain = make_pair(torch.nn.PReLU())
    torch.testing.assert_close(one(x), plain(linear(x)))


# ---- parameters ----


def test_parameters_are_those_of_linear():
    torch.manual_seed(2)
    linear = torch.nn.Linear(IN, OUT)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    ours = nn.LinearActivation(IN, OUT, "prelu")
    assert torch.equal(torch.get_rng_state(), state)  # nothing else was drawn
    assert list(ours.state_dict()) == ["weight", "bias", "activation.weight"]
    assert torch.equal(ours.weight, linear.weight) and torch.equal(ours.bias, linear.bias)
    with torch.no_grad():
        ours.weight.zero_()
        ours.activation.weight.fill_(3.0)
    torch.manual_seed(2)
    ours.reset_parameters()
    assert torch.equal(ours.weight, linear.weight) and ours.activation.weight.item() == 0.25
    ours = nn.LinearActivation(IN, OUT, torch.nn.GELU())
    ours.load_state_dict(linear.state_dict(), strict=True)
    linear.load_state_dict(ours.state_dict(), strict=True)
    torch.testing.assert_close(ours(torch.ones(2, IN)), F.gelu(linear(torch.ones(2, IN))))


def test_device_and_dtype():
    ours = nn.LinearActivation(IN, OUT, "prelu", device="meta", dtype=torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in ours.parameters()} == {("meta", torch.bfloat16)}
    y = ours(torch.empty(5, IN, device="meta", dtype=torch.bfloat16))
    assert y.shape == (5, OUT) and y.dtype == torch.bfloat16 and y.device.type == "meta"


def test_from_eager_shares():
    linear, prelu = torch.nn.Linear(IN, OUT).eval(), torch.nn.PReLU()
    for ours in (
        nn.LinearActivation.from_eager(linear, prelu, precision="tf32"),
        nn.LinearActivation.from_eager(torch.nn.Sequential(linear, prelu), precision="tf32"),
        nn.LinearActivation.from_eager(nn.Linear.from_eager(linear, precision="tf32"), prelu),
    ):
        assert ours.weight is linear.weight and ours.bias is linear.bias
        assert ours.activation is prelu and ours.precision == "tf32" and not ours.training
        x = torch.randn(M, IN)
        torch.testing.assert_close(ours(x), prelu(linear(x)))
    ours = nn.LinearActivation.from_eager(linear, "leaky_relu", negative_slope=0.5)
    torch.testing.assert_close(ours(x), F.leaky_relu(linear(x), 0.5))
    half = nn.LinearActivation.from_eager(torch.nn.Linear(IN, OUT, dtype=torch.half), "prelu")
    assert half.activation.weight.dtype == torch.half and half.activation.weight.is_cpu


def test_copy_of_an_epilogue_without_a_name():
    made = cutlass_fused.epilogue(functools.partial(F.leaky_relu, negative_slope=0.5))
    ours, x = nn.LinearActivation(IN, OUT, made), torch.randn(M, IN)
    assert torch.equal(copy.deepcopy(ours)(x), ours(x))


@pytest.mark.parametrize("name", ["prelu", "gelu", "ours", "Sequential"])
def test_copies(name):
    activation = OTHERS.get(name, name)
    ours, x = nn.LinearActivation(IN, OUT, activation, precision="ieee"), torch.randn(M, IN)
    expected = ours(x).detach()
    for duplicate in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        twin = duplicate(ours)
        assert repr(twin) == repr(ours) and torch.equal(twin(x), expected)
        with torch.no_grad():
            twin.weight.zero_()
        assert torch.equal(ours(x), expected)
    assert torch.equal(copy.copy(ours)(x), expected)


def test_repr():
    ours = nn.LinearActivation(IN, OUT, "leaky_relu", False, negative_slope=0.5, precision="tf32")
    assert repr(ours) == (
        "LinearActivation(in_features=12, out_features=20, bias=False, activation=leaky_relu, "
        "negative_slope=0.5, precision='tf32')"
    )
    assert "activation=cube)" in repr(nn.LinearActivation(IN, OUT, cube))
    assert "(activation): PReLU(num_parameters=1)" in repr(nn.LinearActivation(IN, OUT, "prelu"))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("activation", "given", "error", "message"),
    [
        ("gleu", {}, ValueError, "activation must be one of identity, relu, .*, got 'gleu'"),
        (3, {}, TypeError, r"activation must be a name, a function or a torch.nn.Module, got int"),
        (torch.nn.GELU, {}, TypeError, "or a torch.nn.Module, got the class GELU"),
        ("prelu", {"num_parameters": 1.5}, TypeError, "num_parameters must be an integer, got 1.5"),
        ("gelu", {"alpha": 1.0}, TypeError, "numbers of gelu are none, got alpha"),
        ("elu", {"slope": 1.0}, TypeError, "numbers of elu are alpha, got slope"),
        ("elu", {"alpha": "1"}, TypeError, "alpha must be a number, got str"),
        ("prelu", {"alpha": 1}, TypeError, "numbers of prelu are num_parameters, init, got alpha"),
        ("clamp", {}, ValueError, "min or max of clamp must be given, got neither"),
        (F.elu, {"alpha": 1.0}, TypeError, "numbers of an activation that is no name are none"),
        (Scaled(), {}, TypeError, "no parameters or buffers, got Scaled with scale"),
        (
            torch.nn.Linear(2, 2),
            {},
            TypeError,
            "parameters or buffers, got Linear with weight, bias",
        ),
        ("gelu", {"precision": "fp8"}, ValueError, "'ieee', 'tf32' or None, got 'fp8'"),
    ],
)
def test_refused(activation, given, error, message):
    with pytest.raises(error, match=f"LinearActivation: .*{message}"):
        nn.LinearActivation(IN, OUT, activation, **given)


def test_refused_by_from_eager():
    with pytest.raises(TypeError, match=r"linear must be a torch\.nn\.Linear, got ReLU"):
        nn.LinearActivation.from_eager(torch.nn.ReLU(), "gelu")
    with pytest.raises(TypeError, match="activation must be a name.*got NoneType"):
        nn.LinearActivation.from_eager(torch.nn.Linear(IN, OUT))
    linear = torch.nn.Linear(IN, OUT)
    linear.register_forward_hook(lambda *arguments: None)
    with pytest.raises(TypeError, match="linear must have no hooks, which would not run"):
        nn.LinearActivation.from_eager(linear, "gelu")


def test_refused_calls():
    ours, x = nn.LinearActivation(IN, OUT, lambda z: z.cumsum(1)), torch.randn(M, IN)
    with pytest.raises(
        RuntimeError, match=rf"<lambda>: the line {__file__}:\d+ \(<lambda>\) calls"
    ):
        ours(x)
    ours = nn.LinearActivation(IN, OUT, "gelu")
    with pytest.raises(RuntimeError, match=r"gelu: x must have 12 columns, as weight \(20, 12\)"):
        ours(x[:, 1:])
    for name in ("gelu", "prelu"):
        with pytest.raises(TypeError, match=f"{name}: x must be a tensor, got list"):
            nn.LinearActivation(IN, OUT, name)([1.0])
    with pytest.raises(NotImplementedError, match="LinearActivation: TorchScript must be made"):
        torch.jit.script(ours)
