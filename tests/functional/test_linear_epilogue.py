"""functional.linear_epilogue: epilogues as arguments, by name, and what each name computes."""

import sys
import threading

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused.programs import common
from cutlass_fused.programs.common import FUNCTIONS, MADE, common_epilogues, make_epilogue
from cutlass_fused.programs.traced import TracedFunction

M, N, K = 6, 5, 8
NUMBERS = {"clamp": {"min": -1.0, "max": 0.5}}


@cutlass_fused.epilogue
def gated(acc, bias, gate=2.0):
    return F.gelu(acc + bias) * gate


def make(dtype=torch.float32, **more):
    torch.manual_seed(3)
    options = {"dtype": dtype} | more
    return torch.randn(M, K, **options), torch.randn(N, K, **options), torch.randn(N, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names(name):
    """What PyTorch calls so: test_linear_activation.py has the values of all."""
    x, weight, bias = make(torch.float64)
    z = F.linear(x, weight, bias)
    if name == "prelu":
        for slope in (torch.tensor(0.2), torch.tensor([0.2]), torch.linspace(-1, 1, N)):
            slope = slope.double()
            found = functional.linear_epilogue(x, weight, name, bias=bias, slope=slope)
            torch.testing.assert_close(found, torch.where(z > 0, z, z * slope))
        return
    plain = {
        "identity": lambda z, **_: z,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "clamp": torch.clamp,
    }.get(name) or getattr(F, name)
    given = NUMBERS.get(name, {})
    found = functional.linear_epilogue(x, weight, name, bias=bias, **given)
    torch.testing.assert_close(found, plain(z, **given))
    found = functional.linear_epilogue(x, weight, name, **given)
    torch.testing.assert_close(found, plain(x @ weight.t(), **given))


def test_common_epilogues():
    """The same in every call; each text is that of the activation alone, behind a bias or not."""
    common = common_epilogues()
    assert common is common_epilogues() and common.keys() == FUNCTIONS.keys()
    for name, made in common.items():
        assert made.__name__ == name and "bias" in made.traced.operands
        key = tuple(NUMBERS.get(name, {}).items())
        key += (("slope", ("row", 1)),) if name == "prelu" else ()
        without = made.traced.find(key).program
        text = made.traced.find((("bias", ("row", 1)), *key)).program
        assert len(text.lines) == len(without.lines) + 1 and len(without.lines) <= 1
    own = TracedFunction("own", lambda z, b: F.silu(z + b)).find((("b", ("row", 1)),))
    of_common = common["silu"].traced.find((("bias", ("row", 1)),))
    assert own.program.text == of_common.program.text  # so that one kernel serves both


def test_epilogues_and_functions():
    x, weight, bias = make()
    expected = F.gelu(F.linear(x, weight, bias)) * 2
    torch.testing.assert_close(functional.linear_epilogue(x, weight, gated, bias=bias), expected)

    def plain(acc, bias):
        return F.gelu(acc + bias) * 2

    torch.testing.assert_close(functional.linear_epilogue(x, weight, plain, bias=bias), expected)
    assert make_epilogue(plain) == make_epilogue(plain)  # traced once
    for number in range(300):
        functional.linear_epilogue(x, weight, lambda acc, number=number: acc * number)
    assert len(vars(MADE)) <= 256 + len(FUNCTIONS)
    silu = functional.linear_epilogue(x, weight, torch.nn.SiLU())
    torch.testing.assert_close(silu, F.silu(x @ weight.t()))


def test_names_of_operands():
    """Those of arguments, too."""
    x, weight, bias = make()
    highway = functional.linear_epilogue(
        x,
        weight,
        lambda acc, x, weight, epilogue: acc * x + weight * epilogue,
        x=bias,
        weight=2.0,
        epilogue=x[:, :1],
    )
    torch.testing.assert_close(highway, x @ weight.t() * bias + 2 * x[:, :1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    x, weight, bias = make(dtype)
    y = functional.linear_epilogue(x, weight, "mish", bias=bias)
    wide = functional.linear_epilogue(x, weight, "mish", bias=bias, out_dtype=torch.float32)
    assert y.dtype == dtype and wide.dtype == torch.float32
    assert torch.equal(y, wide.to(dtype))
    exact = F.mish(F.linear(x.double(), weight.double(), bias.double()))
    torch.testing.assert_close(wide.double(), exact, rtol=1e-5, atol=1e-5)


def test_gradients():
    x, weight, bias = make(torch.float64, requires_grad=True)
    slope = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)

    def run(x, weight, bias, slope):
        return functional.linear_epilogue(x, weight, "prelu", bias=bias, slope=slope)

    assert torch.autograd.gradcheck(run, (x, weight, bias, slope))
    assert torch.autograd.gradgradcheck(
        lambda x, w, b: functional.linear_epilogue(x, w, "mish", bias=b), (x, weight, bias)
    )


@pytest.mark.parametrize("epilogue", ["gelu", gated, F.silu], ids=["name", "epilogue", "function"])
def test_compiled(epilogue):
    torch._dynamo.reset()
    x, weight, bias = make(requires_grad=True)
    operands = {} if epilogue is F.silu else {"bias": bias}

    def run(x, weight):
        return functional.linear_epilogue(x, weight, epilogue, **operands).square()

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    y, expected = compiled(x, weight), run(x, weight)
    torch.testing.assert_close(y, expected)
    grads = [torch.autograd.grad(each.sum(), (x, weight)) for each in (y, expected)]
    torch.testing.assert_close(*grads)
    functional.linear_epilogue(x, weight, lambda acc: acc)  # another one is made
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(x, weight)


def test_precision_reaches_the_op():
    x, weight, bias = make()
    for precision in ("ieee", "tf32"):
        found = []

        class Record(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, op, types, args=(), kwargs=None, found=found):
                found += [args[4]] if op is torch.ops.cutlass_fused.linear_epilogue.default else []
                return op(*args, **(kwargs or {}))

        with torch.no_grad(), Record():
            functional.linear_epilogue(x, weight, "relu", bias=bias, precision=precision)
        assert found == [precision]


def test_flops():
    x, weight, bias = make()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        functional.linear_epilogue(x, weight, "relu", bias=bias)
    assert counter.get_total_flops() == 2 * M * N * K


class Doubled:
    def forward(self, acc):
        return acc * 2

    __call__ = forward


class Unhashable:
    __hash__ = None

    def __call__(self, acc):
        return acc


X, WEIGHT, BIAS = make()


@pytest.mark.parametrize(
    ("arguments", "operands", "error", "message"),
    [
        ((X, WEIGHT, "gleu"), {}, ValueError, "epilogue must be one of identity, relu, .*'gleu'"),
        ((X, WEIGHT, 3), {}, TypeError, "epilogue must be an epilogue, a function or .*, got int"),
        ((X, WEIGHT, Unhashable()), {}, TypeError, "epilogue must be hashable, .*, got Unhashable"),
        ((X, WEIGHT, lambda: 3), {}, TypeError, "<lambda>: the first argument must be acc"),
        ((X, WEIGHT, "gelu"), {"gate": 1.0}, TypeError, "gelu: operands must be of bias, got gate"),
        ((X, WEIGHT, "prelu"), {}, TypeError, "prelu: slope must be given, got no such operand"),
        (
            (X, WEIGHT, "clamp"),
            {},
            RuntimeError,
            "clamp: it raises ValueError: .* both min and max are none",
        ),
        ((X, WEIGHT, "gelu"), {"precision": "fp8"}, ValueError, "precision must be 'ieee', 'tf32'"),
        (([1.0], WEIGHT, "gelu"), {}, TypeError, "gelu: x must be a tensor, got list"),
        ((X[:, 1:], WEIGHT, "gelu"), {}, RuntimeError, "gelu: x must have 8 columns, as weight"),
        ((X, WEIGHT, "gelu"), {"bias": BIAS[1:]}, RuntimeError, r"bias must have shape \(\), \(5,"),
        ((X, WEIGHT, "gelu"), {"bias": "b"}, TypeError, "bias must be a tensor, a number or None"),
    ],
)
def test_refused(arguments, operands, error, message):
    with pytest.raises(error, match=message):
        functional.linear_epilogue(*arguments, **operands)


def test_compiled_before_a_call():
    """Of several in one graph, those that are made while TorchDynamo traces are found."""
    x, weight, _ = make()

    def run(x):
        y = functional.linear_epilogue(x, weight, lambda acc: acc.sin())
        return y + functional.linear_epilogue(x, weight, lambda acc: acc.cos())

    torch.testing.assert_close(torch.compile(run, backend="eager", fullgraph=True)(x), run(x))


@pytest.mark.parametrize("kind", ["module", "method", "object"])
def test_compiled_with_an_object(kind):
    """Between two graphs: TorchDynamo hands over functions alone."""
    made = torch.nn.SiLU() if kind == "module" else Doubled()
    made, (x, weight, _) = made.forward if kind == "method" else made, make()

    def run(x):
        return functional.linear_epilogue(x, weight, made) + 1

    torch.testing.assert_close(torch.compile(run, backend="eager")(x), made(x @ weight.t()) + 1)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="must be made by cutlass_fused.epi"):
        torch.compile(run, backend="eager", fullgraph=True)(x)
    ours = cutlass_fused.epilogue(made)
    compiled = torch.compile(lambda x: ours(x, weight), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), made(x @ weight.t()))


def test_functions_of_several_threads(monkeypatch):
    """More of them than are held, so that each thread drops what others have made."""
    interval, errors = sys.getswitchinterval(), []
    monkeypatch.setattr(common, "_MOST_FUNCTIONS", 4)

    def run():
        try:
            for _ in range(2000):
                make_epilogue(lambda acc: acc)
        except Exception as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_docstring_tells_the_names():
    for text in (functional.linear_epilogue.__doc__, cutlass_fused.nn.LinearActivation.__doc__):
        assert all(f'"{name}"' in text for name in FUNCTIONS)
