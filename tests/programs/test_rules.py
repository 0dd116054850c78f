"""Every op that a function may call: its rule, and that of its gradient, beside PyTorch's own."""

import copy
import pickle

import pytest
import torch
import traced
from program_cases import Case
from torch.nn import functional as F

from cutlass_fused.programs.epilogue import Epilogue, epilogue
from cutlass_fused.programs.program import run
from cutlass_fused.programs.tracing import constants, gradient_rules, rules, trace
from cutlass_fused.programs.tracing.gradient import GradientTracer

TILE = {"b": "tile"}
# Functions of acc and a tile, by the ops that they are there for.
FUNCTIONS = {
    "add": lambda z, b: torch.add(z, b, alpha=3) + torch.add(z, 2, alpha=0.5),
    "sub": lambda z, b: torch.sub(z, b, alpha=3) - torch.sub(z, 2) + torch.rsub(z, b, alpha=2),
    "rsub": lambda z, b: 2 - z + torch.rsub(b, 3, alpha=0.5),
    "mul": lambda z, b: (z * b) * 2 * torch.mul(z, 3),
    "div": lambda z, b: z / (b * b + 1) + z / 3 + 2 / (b * b + 1),
    "in place": lambda z, b: (z * 1.5).add_(b).mul_(2).sub_(1).div_(3).neg_().clamp_(-4, 5),
    "lerp": lambda z, b: torch.lerp(z, b, 0.25) + torch.lerp(z, b, 0.75) + torch.lerp(z, b, z),
    "addcmul": lambda z, b: torch.addcmul(z, z, b, value=0.5) + torch.addcmul(b, z, z),
    "addcdiv": lambda z, b: torch.addcdiv(z, z, b * b + 1, value=0.5),
    "pow": lambda z, b: z**3 + (z * z + 1) ** b + 2.0**z + z**2.5 + z**0 + (z**1) ** -1,
    "fmod": lambda z, b: torch.fmod(z, 2) * b,
    "clamp": lambda z, b: z.clamp(-1, 1) + z.clamp(b - 1, b + 1) + z.clamp(min=0) + z.clamp(max=b),
    "clamp_min": lambda z, b: z.clamp_min(0.5) + z.clamp_min(b) + z.clamp_max(0.5) + z.clamp_max(b),
    "one bound": lambda z, b: torch.clamp(z, min=b) + torch.clamp(z, max=b),
    "maximum": lambda z, b: torch.maximum(z, b) - torch.minimum(z, b) + torch.max(z, b),
    "fmax": lambda z, b: torch.fmax(z, b) + torch.fmin(z, b * 2),
    "logaddexp": lambda z, b: torch.logaddexp(z, b),
    "xlogy": lambda z, b: torch.xlogy(z, b * b + 1) + torch.xlogy(z, 2.0) + torch.xlogy(2.0, b * b),
    "frac": lambda z, b: z.frac() * b,
    "nan_to_num": lambda z, b: torch.nan_to_num(z, 1.0, 2.0, -2.0) * b + torch.nan_to_num(b),
    "masks": lambda z, b: z.masked_fill(z > b, 2.0) + b.masked_fill(z > 0, 3.0),
    "where": lambda z, b: torch.where(z > 0, z, b) + torch.where(z > b, 1.0, z) + (z > b) * b,
    "truths": lambda z, b: (
        z * torch.where((z > 0) == (b > 0), 1.0, 2.0) * ((z < b) | (b <= 0)).float()
    ),
    "bits": lambda z, b: (
        z * (~(z >= 0) ^ (b > 0) & (z != b)) * torch.where((z > 0) ^ (b > 0), b > z, z == 1)
    ),
    "isinf": lambda z, b: torch.where(torch.isinf(1 / (z * 0)) | torch.isnan(b), z, b),
    "logical": lambda z, b: (
        z * torch.logical_and(z > 0, b) * torch.logical_not(b < 0)
        + b * torch.logical_or(z, b < 0) * torch.logical_xor(z > 0, b > 0)
    ),
    "sign": lambda z, b: z.sign() * b + z.sgn() + z.abs(),
    "rounding": lambda z, b: (z.floor() + z.ceil() - z.round() + z.trunc()) * b,
    "exponentials": lambda z, b: z.exp() + z.exp2() + z.expm1() + torch.special.expit(b),
    "logarithms": lambda z, b: sum(
        f(z * z + 1) for f in (torch.log, torch.log2, torch.log10, torch.log1p)
    ),
    "angles": lambda z, b: (
        z.sin()
        + z.cos()
        + (z / 9).tan()
        + (z / 20).asin()
        + (z / 20).acos()
        + z.atan()
        + torch.atan2(z, b)
    ),
    "hyperbolic": lambda z, b: (
        z.sinh() + z.cosh() + z.tanh() + z.asinh() + (z * z + 2).acosh() + (z / 20).atanh()
    ),
    "errors": lambda z, b: z.erf() + b.erfc() + z.sigmoid() + z.relu(),
    "roots": lambda z, b: (z * z).sqrt() + torch.rsqrt(z * z + 1) + torch.reciprocal(b * b + 1),
    "in place activations": lambda z, b: (
        F.relu_(z * 2)
        + F.elu_(b * 1, 0.5)
        + F.leaky_relu_(z * 3)
        + F.hardtanh_(b * 2)
        + F.threshold_(z * 4, 0.5, 1.0)
        + F.selu_(z * 1)
        + F.silu(z, inplace=True)
    ),
    "constants": lambda z, b: (
        z * torch.full_like(z, 2).sqrt()
        + torch.ones_like(b)
        + torch.zeros_like(b)
        + torch.zeros(())
        + torch.ones(())
        + torch.full((), 0.5)
        + z.new_full((), 3)
        + z.new_zeros(())
        + z.new_ones(())
        + torch.empty_like(z).fill_(4.0)
        + torch.fill(z, 5.0)
        + torch.scalar_tensor(6.0)
        + torch.empty(()).zero_()
    ),
    "constant truths": lambda z, b: (
        torch.where(torch.tensor(True), z, b)
        + torch.where(torch.zeros_like(z, dtype=torch.bool), z, b)
        + z * ((z > 0) & torch.tensor(True))
        + z * ((z > 0) | torch.tensor(False))
        + z * ((z > 0) ^ torch.tensor(True))
        + z * torch.logical_not(torch.zeros(()))
    ),
    "integers of constants": lambda z, b: (
        z * torch.tensor(2.7).int()
        + torch.tensor(2.7).bool() * b
        + z * (torch.tensor(True) + torch.tensor(True))
        + torch.tensor(300.0).to(torch.uint8)
    ),
    "narrow constants": lambda z, b: (
        z * torch.tensor(0.1).half().float() + torch.tensor(2.7).long()
    ),
    "devices": lambda z, b: (
        z * torch.tensor(0.5, device=z.device)
        + z.new_tensor(0.25)
        + torch.as_tensor(2, dtype=z.dtype, device=z.device)
    ),
    "rows in one": lambda z, b: (
        z.view(1, *z.shape).squeeze(0).contiguous().clone() + b.reshape_as(z)
    ),
    "nothing": lambda z, b: z.sub_(b) if False else z + b.detach(),
}
OTHERS = {"heaviside": lambda z, b: z * torch.heaviside(b, z) + torch.heaviside(z, b)}
# Of which no gradient is a program.
OTHERS["remainder"] = lambda z, b: z % 2 + torch.remainder(z, b) + torch.remainder(3.0, z * z + 1)
OTHERS["fmod of two"] = lambda z, b: torch.fmod(z, b)
ALL = FUNCTIONS | OTHERS


def make_case(name):
    return Case(ALL[name], TILE)


@pytest.mark.parametrize("name", ALL)
def test_values(name):
    case = make_case(name)
    program = traced.find_program(name, case)
    for tensors in (traced.make_tensors(case), traced.make_special(case, torch.float64)):
        expected = case.function(*(each.clone() for each in tensors))  # which it may write to
        (found,) = run(program, tensors[0], tensors[1:])
        options = {"rtol": 1e-7, "atol": 1e-9, "equal_nan": True}
        torch.testing.assert_close(found.expand_as(expected), expected, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    x, weight = torch.randn(23, 9).double().requires_grad_(), torch.eye(17, 9).double()
    (_, b) = traced.make_tensors(make_case(name))
    b.requires_grad_()
    y = epilogue(FUNCTIONS[name])(x, weight, b=b)
    expected = FUNCTIONS[name](x @ weight.t(), b)
    options = {"allow_unused": True, "create_graph": True}
    for one, other in zip(
        torch.autograd.grad(y.sum(), (x, b), **options),
        torch.autograd.grad(expected.sum(), (x, b), **options),
        strict=True,
    ):
        zero = torch.zeros(())
        pair = [zero.expand_as(x) if each is None else each for each in (one, other)]
        if one is None or other is None:
            assert not any(each.any() for each in pair)
            continue
        torch.testing.assert_close(*pair, rtol=1e-7, atol=1e-7, equal_nan=True)


def test_all_are_reached(monkeypatch):
    """Each rule by some function above, or one of PyTorch's own cases."""
    from program_cases import CASES

    reached = set()

    def record(method):
        def dispatch(self, op, types, args=(), kwargs=None):
            reached.add(op)
            return method(self, op, types, args, kwargs)

        return dispatch

    for tracer in (trace.Tracer, GradientTracer):
        monkeypatch.setattr(tracer, "__torch_dispatch__", record(tracer.__torch_dispatch__))
    for name, case in (CASES | {name: make_case(name) for name in ALL}).items():
        traced.find_program(name, case)
        if name not in (*OTHERS, "sign"):  # whose zeros of a gradient are PyTorch's own tensors
            traced.find_gradient(name, case)
    known = {*rules.RULES, *gradient_rules.GRADIENT_RULES, *constants.CONSTANTS}
    known |= {*constants.WRITTEN_CONSTANTS}
    # In whose place PyTorch 2.11 dispatches others.
    assert {str(op) for op in known - reached} <= {
        *("aten.masked_fill.Tensor", "aten.mish_backward.default", "aten.zero.default"),
    }


def differentiate_twice(run, x, *more):
    (first,) = torch.autograd.grad(run(x, *more).sum(), x, create_graph=True)
    return torch.autograd.grad((first * first).sum(), (x, *more), allow_unused=True)


def no_grad_inside(acc, b):
    with torch.no_grad():
        scale = torch.sigmoid(acc)
    return acc * acc * scale * b


@pytest.mark.parametrize(
    "function",
    [lambda acc, b: (acc * b) * (acc * b).detach(), no_grad_inside],
)
def test_second_derivatives_know_of_detach(function):
    x, b = torch.randn(6, 5).double().requires_grad_(), torch.randn(6, 5).double().requires_grad_()
    weight = torch.eye(5).double()
    made = epilogue(function)
    expected = differentiate_twice(function, x, b)
    found = differentiate_twice(lambda x, b: made(x, weight, b=b), x, b)
    for one, other in zip(found, expected, strict=True):
        assert (one is None or not one.any()) == (other is None or not other.any())
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


class BySize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / grad.shape[0]


class Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.ones_like(grad)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("no gradient")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda acc, b: BySize.apply(acc) * b, id="sizes"),
        pytest.param(lambda acc, b: acc + Ones.apply(b), id="no sum"),
        pytest.param(
            lambda acc, b: acc * (3 if torch.is_grad_enabled() else 2) * b, id="grad mode"
        ),
    ],
)
def test_gradients_that_are_none_of_programs(function):
    """By PyTorch then."""
    x, b = torch.randn(6, 5).double().requires_grad_(), torch.randn(1).double().requires_grad_()
    found = torch.autograd.grad(epilogue(function)(x, torch.eye(5).double(), b=b).sum(), (x, b))
    expected = torch.autograd.grad(function(x, b).sum(), (x, b))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_gradient_that_raises():
    """Where it is asked for, not in the call."""
    x = torch.randn(6, 5, requires_grad=True)
    y = epilogue(lambda acc: Raises.apply(acc))(x, torch.eye(5))
    with pytest.raises(NotImplementedError, match="no gradient"):
        y.sum().backward()


@epilogue
def doubled(acc):
    return acc * 2


@epilogue
def tripled(acc):
    return acc * 3


def test_copies():
    """An epilogue is its own copy, in a deep copy of a module too, and in another process."""
    for made in (doubled, tripled):
        assert copy.deepcopy(made) is made and copy.copy(made) is made
        assert pickle.loads(pickle.dumps(made)) is made
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Epilogue(lambda acc: acc))


def test_dtypes_of_shared_gradients():
    """That of an fp32 residual is not rounded to the fp16 that x has."""
    x, weight = torch.zeros(6, 5).half().requires_grad_(), torch.eye(5).half()
    residual, bias = torch.zeros(6, 5, requires_grad=True), torch.zeros(5, requires_grad=True)
    y = epilogue(lambda acc, r, b: acc + r + b)(x, weight, r=residual, b=bias)
    assert y.dtype == torch.float32
    (1e5 * y).sum().backward()
    assert torch.equal(residual.grad, torch.full((6, 5), 1e5))
    assert torch.equal(bias.grad, torch.full((5,), 6e5))


def test_results_without_a_gradient():
    """0 times infinity is no gradient of what nobody reads; and what has none wants none."""
    x = torch.randn(6, 5).requires_grad_()
    made = epilogue(lambda acc: (torch.log(acc * 0), acc * 2, acc.detach()))
    first, second, third = made(x, torch.eye(5))
    assert first.requires_grad and second.requires_grad and not third.requires_grad
    (grad,) = torch.autograd.grad(second.sum(), x)
    assert torch.equal(grad, torch.full((6, 5), 2.0))


def test_eight_results():
    x = torch.randn(6, 5).double().requires_grad_()
    made = epilogue(lambda acc: tuple(torch.sin(acc * k) for k in range(1, 9)))
    results = made(x, torch.eye(5).double())
    (grad,) = torch.autograd.grad(sum(results).sum(), x)
    torch.testing.assert_close(grad, sum(k * torch.cos(k * x) for k in range(1, 9)))


def test_batched_gradients():
    x = torch.randn(4, 3).double().requires_grad_()
    made = epilogue(lambda acc: torch.sin(acc))
    y = made(x, torch.eye(3).double())
    grads = torch.randn(5, 4, 3).double()
    (found,) = torch.autograd.grad(y, x, grads, is_grads_batched=True)
    torch.testing.assert_close(found, grads * torch.cos(x))


def test_refused_gradients_are_remembered(monkeypatch):
    function = traced.TracedFunction("it", lambda acc, b: acc + Ones.apply(b))
    key, needed = (("b", ("scalar", 0)),), (True, True)
    with pytest.raises(trace.Refusal):
        function.find_gradient(key, needed)
    monkeypatch.setattr(function, "bind", None)
    with pytest.raises(trace.Refusal):
        function.find_gradient(key, needed)


@pytest.mark.parametrize(
    "of_row",
    [torch.sigmoid, torch.tanh, F.relu, F.softplus, lambda b: b.clamp(-1, 1), torch.square],
)
def test_functions_of_rows(of_row):
    """Their gradients follow the sum of a row's, and are programs."""
    case = Case(lambda acc, b: acc * of_row(b), {"b": "row"})
    traced.find_gradient("it", case)
    x, b = torch.randn(6, 5).double().requires_grad_(), torch.randn(5).double().requires_grad_()
    found = torch.autograd.grad(
        epilogue(case.function)(x, torch.eye(5).double(), b=b).sum(), (x, b)
    )
    expected = torch.autograd.grad(case.function(x, b).sum(), (x, b))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


NAN = float("nan")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda acc: acc.clamp(min=NAN), id="clamp from"),
        pytest.param(lambda acc: acc.clamp(max=NAN), id="clamp to"),
        pytest.param(lambda acc: acc.clamp(NAN, 1.0), id="clamp"),
        pytest.param(lambda acc: acc.clamp_min(NAN), id="clamp_min"),
        pytest.param(lambda acc: acc.clamp_max(NAN), id="clamp_max"),
        pytest.param(lambda acc: acc.clone().clamp_min_(NAN), id="clamp_min_"),
        pytest.param(lambda acc: torch.clamp(acc, torch.tensor(NAN)), id="clamp from a tensor"),
        pytest.param(lambda acc: torch.clamp(acc, max=torch.tensor(NAN)), id="clamp to a tensor"),
        pytest.param(lambda acc: acc.clamp_min(torch.tensor(NAN)), id="clamp_min by a tensor"),
    ],
)
def test_bounds_that_are_nan(function):
    """PyTorch's clamp takes one number that is NaN for no bound, its other ops do not."""
    x = torch.randn(6, 5)
    found = epilogue(function)(x, torch.eye(5), precision="ieee")
    torch.testing.assert_close(found, function(x @ torch.eye(5)), equal_nan=True)
