"""Gradients in C++ (src/switch/gradients.cpp): when they serve, and whether they are right."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from cutlass_fused import functional
from cutlass_fused.functional._derived import native
from cutlass_fused.matmul import _native

pytestmark = pytest.mark.skipif(
    isinstance(_native.load(), str), reason=f"gradients are in Python: {_native.load()}"
)

LEAKY = {"scale": -1.5, "negative_slope": 0.1}
FUNCTIONS = {
    "linear": functional.linear,
    "leaky_relu": lambda x, w, b=None, **options: functional.linear_scale_leaky_relu(
        x, w, b, **LEAKY, **options
    ),
    "a negative slope": lambda x, w, b=None, **options: functional.linear_scale_leaky_relu(
        x, w, b, 0.5, -0.2, **options
    ),
}
each_function = pytest.mark.parametrize("name", FUNCTIONS)
SHAPES = [(5, 3), (2, 3, 3), (3,), (0, 3), (2, 0, 3), (4, 1), (4, 0)]


def make(shape=(5, 3), n=4, dtype=torch.float32, bias=True):
    torch.manual_seed(0)
    x, weight = torch.randn(shape, dtype=dtype), torch.randn(n, shape[-1], dtype=dtype)
    leaves = [x, weight, *([torch.randn(n, dtype=dtype)] if bias else [])]
    return [leaf.requires_grad_() for leaf in leaves]


def is_native(y):
    return type(y.grad_fn).__name__ == "CppFunction"


def run(name, leaves, **options):
    """y, and the gradients of all leaves."""
    y = FUNCTIONS[name](*leaves, **options)
    torch.manual_seed(1)
    return is_native(y), [y, *torch.autograd.grad(y, leaves, torch.randn_like(y))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@each_function
def test_results_are_those_in_python(name, dtype, shape, bias, monkeypatch):
    leaves = make(shape, dtype=dtype, bias=bias)
    is_ours, results = run(name, leaves)
    assert is_ours
    monkeypatch.setattr(native, "is_served", lambda *_: False)
    is_ours, expected = run(name, leaves)
    assert not is_ours
    for mine, theirs in zip(results, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(mine, theirs)


@each_function
def test_no_columns(name):
    leaves = make(n=0)
    is_ours, results = run(name, leaves)
    assert is_ours and [result.shape for result in results[1:]] == [leaf.shape for leaf in leaves]
    assert all(torch.equal(result, torch.zeros_like(result)) for result in results[1:])


@each_function
def test_derivatives_of_all_orders(name):
    leaves = make(dtype=torch.float64)
    assert torch.autograd.gradcheck(FUNCTIONS[name], leaves)
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], leaves)


@each_function
def test_the_gradient_of_a_weight_lies_as_the_weight(name):
    """That of a parameter (K, N) then needs no copy."""
    x, weight, bias = make()
    expected = torch.autograd.grad(FUNCTIONS[name](x, weight, bias).sin().sum(), weight)[0]
    assert expected.is_contiguous()
    along_n = weight.detach().t().contiguous().t().requires_grad_()
    y = FUNCTIONS[name](x, along_n, bias)
    (found,) = torch.autograd.grad(y.sin().sum(), along_n)
    assert is_native(y) and found.stride() == along_n.stride()
    torch.testing.assert_close(found, expected)
    assert torch.autograd.gradgradcheck(
        FUNCTIONS[name],
        [each.detach().double().requires_grad_() for each in (x, along_n, bias)],
    )


@each_function
def test_a_wider_result(name):
    is_ours, results = run(name, make(dtype=torch.bfloat16), out_dtype=torch.float32)
    assert is_ours and results[0].dtype == torch.float32
    assert all(grad.dtype == torch.bfloat16 for grad in results[1:])


@each_function
def test_only_what_is_asked_for_is_multiplied(name):
    x, weight, bias = make()
    y = FUNCTIONS[name](x, weight, bias)
    for asked, products in (([x], 1), ([weight], 1), ([x, weight], 2), ([bias], 0)):
        with torch.profiler.profile() as profile:
            torch.autograd.grad(y.sum(), asked, retain_graph=True)
        events = [event.name for event in profile.events()]
        assert events.count("aten::mm") == products


@each_function
def test_the_result_may_be_written_to(name):
    leaves = make()
    expected = run(name, leaves)[1][1:]
    y = FUNCTIONS[name](*leaves)
    torch.manual_seed(1)
    grad = torch.randn_like(y)
    results = torch.autograd.grad(y.add_(1), leaves, grad)
    assert all(map(torch.equal, results, expected))


@each_function
def test_operands_may_not_be_written_to(name):
    leaves = make()
    y = FUNCTIONS[name](*leaves)
    with torch.no_grad():
        leaves[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_function
def test_backward_twice_with_hooks(name):
    x, weight, bias = make()
    seen = []
    weight.register_hook(seen.append)
    weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    y = FUNCTIONS[name](x, weight, bias)
    y.sum().backward(retain_graph=True)
    once = weight.grad.clone()
    y.sum().backward()
    assert torch.equal(weight.grad, 2 * once) and len(seen) == 4
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
@each_function
def test_checkpoints(name, reentrant):
    leaves = make()
    expected = torch.autograd.grad(FUNCTIONS[name](*leaves).square().sum(), leaves)
    y = checkpoint(FUNCTIONS[name], *leaves, use_reentrant=reentrant)
    y.square().sum().backward()
    assert all(torch.equal(leaf.grad, grad) for leaf, grad in zip(leaves, expected, strict=True))


@each_function
def test_saved_tensors_may_be_packed(name):
    leaves, packed = make(), []

    def pack(tensor):
        packed.append(tensor)
        return tensor.clone()

    expected = run(name, leaves)[1]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        is_ours, results = run(name, leaves)
    assert is_ours and all(map(torch.equal, results, expected))
    assert len(packed) == (2 if name == "linear" else 3)


@each_function
def test_autocast(name):
    """The backward pass, outside of it or within, is not cast again."""
    leaves = make()
    with torch.autocast("cpu", torch.bfloat16):
        y = FUNCTIONS[name](*leaves)
        assert is_native(y) and y.dtype == torch.bfloat16
        within = torch.autograd.grad(y.float().sum(), leaves, retain_graph=True)
    outside = torch.autograd.grad(y.float().sum(), leaves)
    assert all(map(torch.equal, within, outside))
    assert all(grad.dtype == torch.float32 for grad in outside)


@each_function
def test_what_is_left_to_python(name):
    function, (x, weight, bias) = FUNCTIONS[name], make()
    assert is_native(function(x, weight, bias))
    assert not is_native(function(x, weight.detach(), bias))  # whose parts are kept
    assert not is_native(function(x.bfloat16(), weight, bias))

    class Other(torch.Tensor):
        pass

    assert not is_native(function(x.as_subclass(Other), weight, bias))
    with torch.no_grad():
        assert function(x, weight, bias).grad_fn is None
    grad = torch.func.grad(lambda w: function(x, w, bias).sum())(weight)
    torch.testing.assert_close(
        grad, torch.autograd.grad(function(x, weight, bias).sum(), weight)[0]
    )


def test_a_scale_that_is_a_tensor_is_left_to_python():
    x, weight, bias = make()
    y = functional.linear_scale_leaky_relu(x, weight, bias, torch.tensor(2.0))
    assert not is_native(y)


@each_function
def test_without_the_library(name, monkeypatch):
    monkeypatch.setattr(_native, "load", lambda: "there is no file")
    native.is_defined.cache_clear()
    try:
        assert not run(name, make())[0]
    finally:
        native.is_defined.cache_clear()


@each_function
def test_errors_name_the_function(name):
    x, weight, bias = make()
    op = "linear" if name == "linear" else "linear_scale_leaky_relu"
    with pytest.raises(RuntimeError, match=f"{op}: .* 3"):
        FUNCTIONS[name](x[:, :2], weight, bias)
