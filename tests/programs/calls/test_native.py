"""Calls whose gradients are C++'s: what only they could get wrong."""

import copy
import random

import pytest
import torch
from torch.autograd import forward_ad

import cutlass_fused
from cutlass_fused.functional._derived import native as native_calls
from cutlass_fused.nn import LinearActivation
from cutlass_fused.programs import native
from cutlass_fused.programs.epilogue import epilogue

M, N, K = 6, 5, 4

pytestmark = pytest.mark.skipif(
    not native_calls.is_defined(), reason="the library of the switch is not built"
)


@pytest.fixture
def calls(monkeypatch):
    """Of C++."""
    made, run = [], native.run
    monkeypatch.setattr(native, "run", lambda *given: made.append(given) or run(*given))
    return made


def make_layer(dtype=torch.float64, activation=torch.nn.SiLU):
    torch.manual_seed(2)
    linear = torch.nn.Linear(K, N, dtype=dtype)
    return LinearActivation.from_eager(linear, activation())


def make_x(dtype=torch.float64):
    torch.manual_seed(3)
    return torch.randn(M, K, dtype=dtype, requires_grad=True)


def differentiate_thrice(layer, x):
    y = layer(x)
    results = [y]
    for _ in range(2):
        (y,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        results.append(y)
    tensors = [x, *layer.parameters()]
    return [*results, *torch.autograd.grad(y.pow(3).sum(), tensors)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", [torch.nn.SiLU, torch.nn.GELU, torch.nn.Tanh])
def test_bits(activation, dtype, calls, monkeypatch):
    """Those of Python's, in three orders."""
    layer, x = make_layer(dtype, activation), make_x(dtype)
    found = differentiate_thrice(layer, x)
    assert len(calls) == 1
    monkeypatch.setattr(native, "takes", lambda: False)
    expected = differentiate_thrice(layer, x)
    assert len(calls) == 1
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_gradgradcheck(calls):
    layer, x = make_layer(), make_x()
    torch.autograd.gradgradcheck(
        lambda x, weight, bias: torch.func.functional_call(
            layer, {"weight": weight, "bias": bias}, (x,)
        ),
        (x, *(each.detach().clone().requires_grad_() for each in layer.parameters())),
    )
    assert calls


def test_batch_of_gradients(calls):
    """One backward pass for many gradients, which C++ has no rule for."""
    layer, x = make_layer(), make_x()
    given = torch.randn(3, M, N, dtype=x.dtype)
    y = layer(x)
    (found,) = torch.autograd.grad(y, x, given, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(y, x, grad, retain_graph=True)[0] for grad in given]
    torch.testing.assert_close(found, torch.stack(each))
    twice = torch.autograd.functional.hessian(lambda x: layer(x).sin().sum(), x, vectorize=True)
    one_by_one = torch.autograd.functional.hessian(lambda x: layer(x).sin().sum(), x)
    torch.testing.assert_close(twice, one_by_one)
    assert calls


def test_tangent_of_a_gradient(calls):
    """Forward mode over a backward pass whose forward pass was plain."""
    layer, x = make_layer(), make_x()
    y = layer(x)
    grad, tangent = torch.randn_like(y), torch.randn_like(y)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad, tangent)
        (found,) = torch.autograd.grad(y, x, dual, retain_graph=True)
        found = forward_ad.unpack_dual(found).tangent
    (expected,) = torch.autograd.grad(y, x, tangent)
    torch.testing.assert_close(found, expected)
    assert calls


def test_leading_dimensions(calls):
    layer = make_layer()
    x = make_x().reshape(2, 3, K).detach().requires_grad_()
    y = layer(x)
    assert y.shape == (2, 3, N)
    found = torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    rows = x.detach().reshape(M, K).requires_grad_()
    expected = torch.autograd.grad(layer(rows).sum(), [rows, *layer.parameters()])
    torch.testing.assert_close(found[0].reshape(M, K), expected[0])
    torch.testing.assert_close(found[1:], expected[1:])
    assert len(calls) == 2


def test_accumulation_and_hooks(calls):
    layer, x = make_layer(), make_x()
    seen = []
    layer.weight.register_hook(lambda grad: seen.append(grad.clone()))
    for _ in range(2):
        layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, seen[0] + seen[1])
    assert len(calls) == 2


def test_what_changed_in_between_is_refused(calls):
    layer, x = make_layer(), make_x()
    y = layer(x)
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert calls


def test_result_in_place(calls):
    """Nothing that the backward pass reads is y."""
    layer, x = make_layer(), make_x()
    (expected,) = torch.autograd.grad(2 * layer(x).sum(), x)
    (found,) = torch.autograd.grad(layer(x).mul_(2).sum(), x)
    torch.testing.assert_close(found, expected)
    assert calls


def test_frozen_weights_are_python_s(calls):
    layer, x = make_layer(), make_x()
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert not calls and x.grad is not None and layer.bias.grad is not None


def test_two_results_are_python_s(calls):
    both = epilogue(lambda acc: (acc, torch.sigmoid(acc)))
    x, weight = make_x(), torch.randn(N, K, dtype=torch.float64, requires_grad=True)
    sum(each.sum() for each in both(x, weight)).backward()
    assert not calls and weight.grad is not None


def test_modes_see_the_op_of_python(calls):
    """What looks at all ops finds none that it does not know."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names = (*self.names, func.name())
            return func(*args, **(kwargs or {}))

    layer, x = make_layer(), make_x()
    with Names() as seen:
        layer(x)
    assert "cutlass_fused::linear_epilogue" in seen.names and not calls


def test_autocast(calls):
    layer, x = make_layer(torch.float32), make_x(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and layer.weight.grad.dtype == torch.float32
    plain = copy.deepcopy(layer)
    plain.zero_grad()
    with torch.autocast("cpu", torch.bfloat16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "takes", lambda: False)
        plain(x).sum().backward()
    assert torch.equal(layer.weight.grad, plain.weight.grad)
    assert calls


def test_gradient_into_a_buffer(calls):
    layer, x = make_layer(torch.float32), make_x(torch.float32)
    layer(x).sum().backward()
    expected, layer.weight.grad = layer.weight.grad, None
    buffer = torch.ones_like(layer.weight)
    cutlass_fused.accumulate_gradient(layer.weight, buffer)
    layer(x).sum().backward()
    torch.testing.assert_close(buffer, 1 + expected)
    assert layer.weight.grad is None and len(calls) == 2


def test_malformed_words(calls):
    """They are refused, whatever is cut off or changed: what they name is looked up in lists."""
    layer, x = make_layer(), make_x()
    layer(x)
    (_, weight, tensors, words, precision, *_) = calls[0]
    run = torch.ops.cutlass_fused.linear_epilogue_with_gradient.default
    generator, refused = random.Random(0), 0
    for _ in range(1000):
        place = generator.randrange(len(words))
        new = generator.choice(["", "-", ",", "|", *"0123456789", words[place:]])
        changed = words[:place] + new + words[place + 1 :]
        try:
            run(x, weight, tensors, changed, precision, False, None, False, None).sum().backward()
        except RuntimeError:
            refused += 1
    assert 500 < refused < 1000
    run(x, weight, tensors, words, precision, False, None, False, None).sum().backward()


@pytest.mark.parametrize("place", range(4))
def test_words_that_name_what_is_not_there(place, calls):
    """Behind the text of a gradient and its dtypes: its first, what it reads, and the places."""
    layer, x = make_layer(), make_x()
    layer(x)
    (_, weight, tensors, words, precision, *_) = calls[0]
    parts = words.split("|")
    parts[(3, 7, 8, 9)[place]] = ("7", "7", "0,7", "0,7")[place]
    run = torch.ops.cutlass_fused.linear_epilogue_with_gradient.default
    with pytest.raises(RuntimeError, match="must name what there is of 1 operands, got others"):
        run(x, weight, tensors, "|".join(parts), precision, False, None, False, None)
