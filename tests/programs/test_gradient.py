"""Gradients of functions as programs of their own."""

import pytest
import torch
import traced
from program_cases import CASES
from torch.nn import functional

from cutlass_fused.programs.program import Acc, Operand, run
from cutlass_fused.programs.traced import TracedFunction
from cutlass_fused.programs.tracing.trace import Refusal


def run_gradient(gradient, tensors, grads):
    """The gradients of what was asked for, as autograd gives them."""
    operands = [
        grads[each] if isinstance(each, int) else tensors[find_place(each)]
        for each in gradient.operands
    ]
    found = run(gradient.program, grads[0], operands)
    shape = tensors[0].shape
    terms = [None if place is None else found[place].expand(shape) for place in gradient.outputs]
    return terms


def find_place(argument):
    return 0 if isinstance(argument, Acc) else 1 + argument.index


def differentiate(case, tensors, grads):
    leaves = [each.clone().requires_grad_() for each in tensors]
    outputs = traced.call(case, leaves)
    return torch.autograd.grad(outputs, leaves, grads, allow_unused=True)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    case, tensors = CASES[name], traced.make_tensors(CASES[name])
    grads = [torch.randn_like(tensors[0]) for _ in traced.call(case, tensors)]
    expected = differentiate(case, tensors, grads)
    found = run_gradient(traced.find_gradient(name, case), tensors, grads)
    for tensor, terms, each in zip(tensors, found, expected, strict=True):
        if terms is None or each is None:
            assert terms is None or not terms.any()
            assert each is None or not each.any()
            continue
        # PyTorch's hardsigmoid has a sixth in fp32.
        torch.testing.assert_close(terms.sum_to_size(tensor.shape), each, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_special_values(name):
    """Where exp overflows, and at the corners: NaN and infinities where PyTorch has them."""
    case, tensors = CASES[name], traced.make_special(CASES[name])
    grads = [torch.ones_like(tensors[0]) for _ in traced.call(case, tensors)]
    expected = differentiate(case, tensors, grads)[0]
    found = run_gradient(traced.find_gradient(name, case), tensors, grads)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, equal_nan=True)


def test_what_is_read():
    """z is not kept for what does not read it, nor an operand."""
    shifted = traced.find_gradient("scale_shift", CASES["scale_shift"])
    assert shifted.operands == (Acc(), Operand(0))  # the gradient of the scale reads acc
    of_acc = traced.find_gradient("scale_shift", CASES["scale_shift"], (True, False, False))
    assert of_acc.operands == (Operand(0),)
    residual = traced.find_gradient("residual", CASES["residual"])
    assert residual.operands == () and residual.outputs == (0, 0)


def test_detached():
    """A straight-through estimator, whose text alone has another gradient."""
    made = TracedFunction("it", lambda acc: acc + (acc.round() - acc).detach())
    gradient = made.find_gradient((), (True,))
    assert gradient.program.text == "program 1\noperands 0\nreturn acc\n"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_function_of_its_own():
    made = TracedFunction("it", lambda acc: Doubled.apply(acc.sin()))
    acc = torch.randn(4, 3, dtype=torch.float64)
    gradient = made.find_gradient((), (True,))
    found = run(gradient.program, torch.ones_like(acc), [acc])[0]
    torch.testing.assert_close(found, 2 * acc.cos())


def test_not_linear_in_a_sum():
    """The gradient of a row, clipped when it is summed: no program of elements is that."""
    made = TracedFunction("it", lambda acc, bias: acc + traced.Clipped.apply(bias))
    with pytest.raises(Refusal, match="not linear in sums"):
        made.find_gradient((("bias", ("row", 1)),), (True, True))
    made.find_gradient((("bias", ("tile", 2)),), (True, True))
    made.find_gradient((("bias", ("row", 1)),), (True, False))


def test_no_gradient():
    made = TracedFunction(
        "it", lambda acc, b: (acc.detach() * b.detach()) + 0 * functional.relu(acc).detach()
    )
    gradient = made.find_gradient((("b", ("row", 1)),), (True, True))
    assert gradient.outputs == (None, None)


def test_within_others():
    """A gradient may first be asked for within inference mode and transforms."""
    expected = traced.find_gradient("swiglu", CASES["swiglu"])
    with torch.inference_mode():
        assert traced.find_gradient("swiglu", CASES["swiglu"]) == expected
    with torch._subclasses.FakeTensorMode(), torch.no_grad():
        assert traced.find_gradient("swiglu", CASES["swiglu"]) == expected
    found = []
    torch.func.vmap(
        lambda x: (found.append(traced.find_gradient("swiglu", CASES["swiglu"])), x)[1]
    )(torch.ones(2))
    assert found == [expected]
