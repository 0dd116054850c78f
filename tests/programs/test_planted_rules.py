"""Rules that are wrong, each of which a comparison with PyTorch finds."""

import pytest
import torch
import traced
from program_cases import Case
from torch.nn import functional as F

from cutlass_fused.programs.program import Acc, run
from cutlass_fused.programs.tracing.gradient import GradientTracer
from cutlass_fused.programs.tracing.trace import Tracer

aten = torch.ops.aten


def is_right(function, tensors):
    case = Case(function)
    (found,) = run(traced.find_program("it", case), tensors, [])
    leaf = tensors.clone().requires_grad_()
    y = function(leaf)
    (expected,) = torch.autograd.grad(y.sum(), leaf)
    gradient = traced.find_gradient("it", case)
    operands = [tensors if isinstance(each, Acc) else None for each in gradient.operands]
    (of_acc,) = run(gradient.program, torch.ones_like(tensors), operands)
    close = {"rtol": 1e-6, "atol": 1e-6, "equal_nan": True}
    return torch.allclose(found, y.detach(), **close) and torch.allclose(
        of_acc.expand_as(expected), expected, **close
    )


FAULTS = {
    "alpha is dropped": (
        aten.add.Tensor,
        lambda b, x, y, alpha=1.0: b.add("add", x, y),
        lambda z: torch.add(z, z.sin(), alpha=3),
    ),
    "arguments change places": (
        aten.sub.Tensor,
        lambda b, x, y, alpha=1.0: b.add("sub", y, x),
        lambda z: z - z.sin(),
    ),
    "the other bound": (
        aten.clamp_max.default,
        lambda b, x, high: b.add("clamp", x, high, float("inf")),
        lambda z: z.clamp_max(0.5),
    ),
    "gelu's other formula": (
        aten.gelu.default,
        lambda b, x, approximate="none": b.add("gelu", x),
        lambda z: F.gelu(z, approximate="tanh"),
    ),
    "a threshold that is passed": (
        aten.threshold_backward.default,
        lambda b, grad, x, threshold: b.add("where", b.add("lt", x, threshold), 0.0, grad),
        torch.relu,
    ),
    "the slope is dropped": (
        aten.leaky_relu_backward.default,
        lambda b, grad, x, slope, is_result: b.add("where", b.add("gt", x, 0.0), grad, 0.0),
        lambda z: F.leaky_relu(z, 0.3),
    ),
    "is_result is ignored": (
        aten.elu_backward.default,
        lambda b, grad, alpha, scale, input_scale, is_result, x: b.add(
            "where", b.add("le", x, 0.0), b.add("mul", grad, b.add("exp", x)), grad
        ),
        lambda z: F.elu_(z * 1.5),
    ),
    "no threshold of softplus": (
        aten.softplus_backward.default,
        lambda b, grad, x, beta, threshold: b.add("mul", grad, b.add("sigmoid", x)),
        lambda z: F.softplus(z, 2.0, 1.0),
    ),
    "a term of silu": (
        aten.silu_backward.default,
        lambda b, grad, x: b.add("mul", grad, b.add("sigmoid", x)),
        F.silu,
    ),
    "bounds that count": (
        aten.hardtanh_backward.default,
        lambda b, grad, x, low, high: b.add(
            "where", b.add("or", b.add("lt", x, low), b.add("gt", x, high)), 0.0, grad
        ),
        F.hardtanh,
    ),
    "tanh of the wrong tensor": (
        aten.tanh_backward.default,
        lambda b, grad, y: b.add("mul", grad, b.add("sub", 1.0, y)),
        torch.tanh,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_found(name, monkeypatch):
    op, wrong, function = FAULTS[name]
    tensors = torch.tensor([-30.0, -3, -1, -0.5, -0.1, 0, 0.1, 0.25, 0.5, 1, 3, 30]).double()
    tensors = tensors.repeat(2, 1)
    assert is_right(function, tensors)
    for tracer in (Tracer, GradientTracer):
        monkeypatch.setitem(tracer.rules, op, wrong)
    assert not is_right(function, tensors)
