"""Epilogues whose calls wait for no link: what of that ops are told, and when."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import cutlass_fused
from cutlass_fused.programs.epilogue import Epilogue

ops = torch.ops.cutlass_fused
M, N, K = 6, 5, 8


@cutlass_fused.epilogue(asynchronous=True)
def gated(acc, bias, gate):
    return F.gelu(acc + bias) * gate


@cutlass_fused.epilogue(asynchronous=False)
def waiting(acc, bias, gate):
    return F.gelu(acc + bias) * gate


class Told(TorchDispatchMode):
    """(op, whether it was told to be asynchronous) of each call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function in (ops.linear_epilogue.default, ops.apply_program.default):
            names = [each.name for each in function._schema.arguments]
            given = dict(zip(names, arguments, strict=False))
            self.calls.append((function.overloadpacket.__name__, given.get("asynchronous", False)))
        return function(*arguments, **(options or {}))


def make(**options):
    torch.manual_seed(2)
    shapes = ((M, K), (N, K), (N,), (M, N))
    return [torch.randn(*shape, dtype=torch.float64, **options) for shape in shapes]


def call(epilogue, x, weight, bias, gate):
    return epilogue(x, weight, bias=bias, gate=gate, precision="ieee")


def test_decorator():
    assert isinstance(gated, Epilogue) and gated.asynchronous and not waiting.asynchronous
    assert not cutlass_fused.epilogue(lambda acc: acc).asynchronous
    with pytest.raises(TypeError):
        cutlass_fused.epilogue(lambda acc: acc, True)


@pytest.mark.parametrize("epilogue", [gated, waiting], ids=["asynchronous", "waiting"])
def test_told(epilogue):
    """The ops of both passes, in a first call and later."""
    tensors = make(requires_grad=True)
    for _ in range(2):
        with Told() as told:
            y = call(epilogue, *tensors)
            y.sum().backward()
        names = ("linear_epilogue", "apply_program")
        assert told.calls == [(name, epilogue.asynchronous) for name in names]
    with Told() as told, torch.no_grad():
        call(epilogue, *tensors)
    assert told.calls == [("linear_epilogue", epilogue.asynchronous)]


def test_some_results_without_gradients():
    """The program that a backward pass finds for these is told, too."""

    @cutlass_fused.epilogue(asynchronous=True)
    def two(acc, bias):
        return F.silu(acc + bias), torch.sigmoid(acc) * bias

    x, weight, bias, _ = make(requires_grad=True)
    y, _ = two(x, weight, bias=bias, precision="ieee")
    with Told() as told:
        y.sum().backward()
    assert told.calls == [("apply_program", True)]


def test_results():
    """On the CPU nothing is linked, and all is the same."""
    x, weight, bias, gate = tensors = make(requires_grad=True)
    found, expected = call(gated, *tensors), F.gelu(x @ weight.T + bias) * gate
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(y.sum(), tensors, retain_graph=True) for y in (found, expected)]
    torch.testing.assert_close(*grads)


def test_compiled():
    tensors = make()
    with Told() as told:
        found = torch.compile(call, fullgraph=True, backend="eager")(gated, *tensors)
    assert told.calls == [("linear_epilogue", True)]
    torch.testing.assert_close(found, call(waiting, *tensors))


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict):
    """It may run where no Python stands in for a kernel."""

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return call(gated, *tensors)

    tensors = tuple(make())
    program = torch.export.export(Module(), tensors, strict=strict)
    (node,) = [each for each in program.graph.nodes if each.target is ops.linear_epilogue.default]
    assert True not in node.args and node.kwargs.get("asynchronous", False) is False
