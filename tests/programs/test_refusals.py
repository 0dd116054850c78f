"""Functions that no program is made of, and what users are told."""

import re

import pytest
import torch
from torch.nn import functional

from cutlass_fused.programs.epilogue import Epilogue, epilogue
from cutlass_fused.programs.tracing.trace import Refusal

AROUND = torch.ones(5)
COUNT = iter(range(100))
X, WEIGHT, BIAS = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)


def long(z):
    for _ in range(300):
        z = (z + 1).sin()
    return z


def write_to_operand(z, b):
    b.mul_(2)
    return z + b


def write_to_view(z):
    y = z * 2
    y.view(-1, *y.shape)[0].add_(1)
    return y


REFUSED = {
    "running sum": (lambda z: z - z.cumsum(1), "calls aten.cumsum, which no word"),
    "sum of rows": (lambda z: z - z.sum(0), "adds or compares rows, where a program"),
    "transpose": (lambda z: (z + 1).t(), "calls aten.t, which no word"),
    "slice": (lambda z: z[:, :2], "calls aten.slice.Tensor, which no word"),
    "reshape": (lambda z: z.reshape(-1), r"moves elements to other places \(aten.view, \(M, 5\)"),
    "control flow": (lambda z: z if z[0, 0] > 0 else -z, "calls aten.select.int"),
    "truth": (lambda z: z if z > 0 else -z, "raises RuntimeError: Boolean value"),
    "truth of one": (lambda z, b: z if b > 0 else -z, "reads a number of a tensor"),
    "item": (lambda z, b: z * float(b), "reads a number of a tensor"),
    "dropout": (lambda z: functional.dropout(z, 0.5), "calls aten.bernoulli_.float"),
    "random": (lambda z: z + torch.randn_like(z), "calls aten.randn_like"),
    "around": (lambda z: z + AROUND, "reads a tensor from around the function"),
    "list": (lambda z: z * torch.tensor([1.0, 2, 3, 4, 5]), "of more than one number"),
    # Of no written memory: of the rows of a trace it would be gigabytes.
    "no device": (lambda z: z + torch.empty(z.shape), "off acc's device .aten.empty"),
    "float64": (lambda z: z.double().exp().float(), "computes float64, where a program has"),
    "bfloat16": (lambda z: z.bfloat16().float(), "computes bfloat16, where a program has"),
    "integers": (lambda z: z * (z > 0).int(), "computes int32, where a program has"),
    "integer sum": (lambda z: z + ((z > 0) + 1), "computes int64, where a program has"),
    "complex": (lambda z: (z * 1j).real, "computes with complex numbers"),
    "sizes": (lambda z: z / z.shape[1], "the same for all sizes"),
    "rows": (lambda z: z if z.shape[0] < 100 else -z, "the same for all sizes"),
    "counter": (lambda z: z + next(COUNT), "the same for all sizes and in every call"),
    "error": (lambda z: z + undefined, "raises NameError: name 'undefined'"),  # noqa: F821
    "written operand": (write_to_operand, "writes to an operand or a view"),
    "written view": (write_to_view, "calls aten.select.int|writes to an operand or a view"),
    "returns a row": (lambda z, b: b * 2, r"must return \(M, N\) of float32, got \(\) of"),
    "returns a truth": (lambda z: z > 0, r"must return \(M, N\) of float32, got \(3, 5\) of bool"),
    "returns a number": (lambda z: 2.0, "must return tensors, got float"),
    "returns nothing": (lambda z: None, "must return tensors, got NoneType"),
    "long": (long, "at most 256 words, got 600"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, message = REFUSED[name]
    made = Epilogue(function)
    operands = {"b": torch.ones(())} if "b" in made.traced.operands else {}
    before = {key: value.clone() for key, value in operands.items()}
    with pytest.raises(Refusal, match=message):
        made(X, WEIGHT, **operands)
    for key, value in before.items():
        assert torch.equal(value, operands[key])


def test_line():
    """That of the user, not one of PyTorch's or ours."""

    def inner(z):
        return torch.cumsum(z, 1)

    def outer(z):
        return inner(z + 1)

    line = inner.__code__.co_firstlineno + 1
    place = re.escape(f"outer: the line {__file__}:{line} (inner) calls aten.cumsum")
    with pytest.raises(Refusal, match=place):
        epilogue(outer)(X, WEIGHT)


def test_line_of_an_error():
    def function(z):
        y = z + 1
        return torch.nn.functional.gelu(y, approximate="no such")

    line = function.__code__.co_firstlineno + 2
    with pytest.raises(Refusal, match=re.escape(f":{line} (function) raises RuntimeError")):
        epilogue(function)(X, WEIGHT)


def test_refused_again():
    """A refusal leaves nothing behind that a second call would take for a program."""
    made = epilogue(lambda z: z.sum())
    for _ in range(2):
        with pytest.raises(Refusal):
            made(X, WEIGHT)


@epilogue
def gated(acc, bias, gate, slope=0.1):
    return functional.leaky_relu(acc + bias, slope) * gate


GATE = torch.randn(6, 1)
CALLS = {
    "missing": ({"bias": BIAS}, TypeError, "gated: gate must be given, got no such operand"),
    "unknown": (
        {"bias": BIAS, "gate": GATE, "other": BIAS},
        TypeError,
        "gated: operands must be of bias, gate, slope, got other",
    ),
    "text": (
        {"bias": BIAS, "gate": "no"},
        TypeError,
        "gated: gate must be a tensor, a number or None, got str",
    ),
    "rows as columns": (
        {"bias": BIAS, "gate": torch.randn(6)},
        RuntimeError,
        r"gated: gate must have shape \(\), \(5,\), \(6, 1\) or \(6, 5\), got \(6,\)",
    ),
    "integers": (
        {"bias": torch.ones(5, dtype=torch.int64), "gate": GATE},
        RuntimeError,
        "gated: bias must be float16, bfloat16, float32 or float64, got int64",
    ),
    "device": (
        {"bias": BIAS.to("meta"), "gate": GATE},
        RuntimeError,
        "gated: bias must be on the device of x, cpu, got meta",
    ),
    "sparse": (
        {"bias": BIAS.to_sparse(), "gate": GATE},
        RuntimeError,
        "gated: bias must be a dense tensor, got one of layout torch.sparse_coo",
    ),
    "three dimensions": (
        {"bias": BIAS, "gate": torch.randn(1, 6, 1)},
        RuntimeError,
        "gated: gate must have shape",
    ),
    "name of a dtype": (
        {"bias": BIAS, "gate": GATE, "out_dtype": "float32"},
        RuntimeError,
        r"gated: out_dtype must be float32 \(the dtype of x\), got 'float32'",
    ),
    "dtype of the result": (
        {"bias": BIAS, "gate": GATE, "out_dtype": torch.float64},
        RuntimeError,
        "gated: out_dtype must be",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_call(name):
    arguments, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        gated(X, WEIGHT, **arguments)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda: None, "the first argument must be acc, got none"),
        (lambda *tensors: None, "the first argument must be acc, got none"),
        (lambda acc, *more: acc, r"operands must have names, got \*more"),
        (lambda acc, **more: acc, r"operands must have names, got \*\*more"),
        (lambda self, acc: acc, "the first argument must be acc, .*, got self"),
        (torch.nn.GELU, "GELU: what is called must be a function, got a class"),
        (lambda acc, precision: acc, "no operand may be named precision, .*, got precision"),
    ],
)
def test_bad_function(function, message):
    with pytest.raises(TypeError, match=message):
        epilogue(function)


def test_bad_option():
    with pytest.raises(TypeError, match="asynchronous must be a bool, got 'no'"):
        epilogue(asynchronous="no")


def test_bad_x():
    nested = torch.nested.nested_tensor([X, X])
    with pytest.raises(RuntimeError, match="gated: x must be a dense tensor, got a nested one"):
        gated(nested, WEIGHT, bias=BIAS, gate=1.0)


def test_line_of_what_is_ours():
    """Where a function calls this package, it is the line of the call."""
    made = epilogue(lambda acc, bias: acc + bias)

    def function(acc):
        return made(acc, WEIGHT, bias=BIAS)

    line = function.__code__.co_firstlineno + 1
    with pytest.raises(Refusal, match=re.escape(f"{__file__}:{line} (function) raises")):
        epilogue(function)(X, WEIGHT)


def test_integer_of_many_digits():
    made = epilogue(lambda acc, shift: acc + shift)
    with pytest.raises(Refusal, match="raises OverflowError"):
        made(X, WEIGHT, shift=10**5000)
