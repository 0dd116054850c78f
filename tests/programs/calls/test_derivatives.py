"""Gradients of calls, by programs of their own, and what they keep."""

import pytest
import torch
import traced
from program_cases import CASES
from torch.nn import functional

from cutlass_fused.functional._derived import native as native_calls
from cutlass_fused.programs import native
from cutlass_fused.programs.epilogue import epilogue

M, N, K = 6, 5, 8
BY = ("C++", "Python")


@pytest.fixture(autouse=True, params=BY)
def by(request, monkeypatch):
    """Who differentiates a function with one result."""
    if request.param == "Python":
        monkeypatch.setattr(native, "takes", lambda: False)
    elif not native_calls.is_defined():
        pytest.skip("the library of the switch is not built")
    return request.param


def make(case, dtype=torch.float64):
    """x, weight and the operands, which all want gradients."""
    torch.manual_seed(4)
    x, weight = torch.randn(M, K, dtype=torch.float64), torch.randn(N, K, dtype=torch.float64)
    operands = traced.make_tensors(case, shape=(M, N))[1:]
    return [each.to(dtype).requires_grad_() for each in (x, weight, *operands)]


def call(case, tensors, function=None):
    x, weight, *operands = tensors
    operands = dict(zip(case.operands, operands, strict=True))
    if function is None:
        results = epilogue(case.function)(x, weight, **operands)
    else:
        results = function(x @ weight.t(), **operands)
    return results if isinstance(results, tuple) else (results,)


def differentiate(results, tensors, **options):
    grads = [torch.linspace(0.5, 1.5, N, dtype=each.dtype).expand_as(each) for each in results]
    return torch.autograd.grad(results, tensors, grads, allow_unused=True, **options)


def assert_close(found, expected, **options):
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            assert one is None or not one.any()
            assert other is None or not other.any()
        else:
            torch.testing.assert_close(one, other, **options)


# PyTorch's hardsigmoid has a sixth in fp32.
CLOSE = {"rtol": 1e-7, "atol": 1e-8}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, by):
    case = CASES[name]
    tensors = make(case)
    results = call(case, tensors)
    node = results[0].grad_fn
    assert "LinearEpilogue" in node.name()
    is_native = by == "C++" and len(results) == 1
    assert type(node).__name__ == ("CppFunction" if is_native else "LinearEpilogueBackward")
    expected = differentiate(call(case, tensors, case.function), tensors)
    assert_close(differentiate(results, tensors), expected, **CLOSE)


# PyTorch has no second derivative of it.
@pytest.mark.parametrize("name", [name for name in CASES if name != "hardsigmoid"])
def test_second_derivatives(name):
    case = CASES[name]
    tensors = make(case)

    def twice(results):
        first = differentiate(results, tensors, create_graph=True)
        total = sum(each.square().sum() for each in first if each is not None)
        return torch.autograd.grad(total, tensors, allow_unused=True) if total.requires_grad else []

    expected = twice(call(case, tensors, case.function))
    assert_close(twice(call(case, tensors)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["softplus", "elu", "selu", "mish", "silu", "gelu", "log_sigmoid"])
def test_second_derivatives_far_out(name):
    """Where exp overflows."""
    case = CASES[name]
    z = torch.tensor([-1e4, -200.0, -90.0, 0.1, 90.0, 200.0, 1e4])[:, None].requires_grad_()
    weight = torch.ones(1, 1)
    first = torch.autograd.grad(call(case, (z, weight))[0].sum(), z, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), z)[0]
    z_64 = z.detach().double().requires_grad_()
    of_pytorch = torch.autograd.grad(case.function(z_64).sum(), z_64, create_graph=True)[0]
    torch.testing.assert_close(first.double(), of_pytorch, rtol=1e-5, atol=1e-6)
    expected = torch.autograd.grad(of_pytorch.sum(), z_64)[0]
    expected[expected.isnan()] = 0  # PyTorch's own mish overflows there
    torch.testing.assert_close(second.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["geglu", "film", "norm_relu", "pre_activation", "rbf"])
def test_dtypes(name, dtype):
    """Of the inputs; close to those of PyTorch in fp32."""
    case = CASES[name]
    tensors = make(case, dtype)
    found = differentiate(call(case, tensors), tensors)
    assert [each.dtype for each in found] == [dtype] * len(tensors)
    wide = [each.detach().float().requires_grad_() for each in tensors]
    expected = differentiate(call(case, wide, case.function), wide)
    eps = torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        assert (one.float() - other).norm() <= 8 * eps * other.norm() + 1e-6


def find_saved(results):
    """The tensors that a call keeps, but those that it was given."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor
    ):
        results()
    return kept


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("bias", []),
        ("residual", []),
        ("bias_residual", []),
        ("scale_shift", [(M, N), (N,)]),  # acc, which the gradient of the scale reads
        ("relu", [(M, N)]),
        ("geglu", [(M, N), (M, N)]),  # acc + bias, which is read as a sum alone
        ("pre_activation", [(M, N), (M, N)]),
    ],
)
def test_kept(name, sizes):
    """x and weight, acc or a sum of it at most once, and the operands that the gradient reads."""
    case = CASES[name]
    tensors = make(case, torch.float32)
    kept = find_saved(lambda: call(case, tensors))
    assert [tuple(each.shape) for each in kept] == [(M, K), (N, K), *sizes]


def test_needed_alone():
    """What no gradient is asked for is not computed, nor kept."""
    case = CASES["scale_shift"]
    x, weight, a, b = make(case, torch.float32)
    frozen = [each.detach() for each in (x, weight, a)]
    kept = find_saved(lambda: call(case, (*frozen, b)))
    assert kept == []
    (found,) = differentiate(call(case, (*frozen, b)), [b])
    torch.testing.assert_close(found, torch.linspace(0.5, 1.5, N) * M)
    kept = find_saved(lambda: call(case, (frozen[0], weight, *frozen[2:], b)))
    assert [tuple(each.shape) for each in kept] == [(M, K), (N,)]


def test_backward_twice():
    case = CASES["geglu"]
    tensors = make(case)
    results = call(case, tensors)
    first = differentiate(results, tensors, retain_graph=True)
    assert_close(differentiate(results, tensors), first)
    with pytest.raises(RuntimeError, match="second time"):
        differentiate(results, tensors)


@epilogue
def added(acc, bias, skipped):
    return acc + bias + skipped


def test_gradient_of_a_sum_is_not_copied():
    """No kernel runs for it: what the sum's operand gets is what the sum got."""
    tensors = [torch.randn(*shape).requires_grad_() for shape in ((M, K), (N, K), (N,), (M, N))]
    x, weight, bias, skipped = tensors
    grad = torch.randn(M, N)
    y = added(x, weight, bias=bias, skipped=skipped)
    of_x, _, of_bias, found = torch.autograd.grad(y, tensors, grad)
    assert found.data_ptr() == grad.data_ptr()
    assert_close([of_x, of_bias], [grad @ weight, grad.sum(0)])


def test_one_result_of_two():
    """The other's gradient counts as zeros."""
    case = CASES["pre_activation"]
    for index in (0, 1):
        tensors = make(case)
        expected = differentiate(call(case, tensors, case.function)[index : index + 1], tensors)
        assert_close(differentiate(call(case, tensors)[index : index + 1], tensors), expected)


def test_composed():
    """A gradient that is none of a program: the function runs behind the product."""

    clipped = epilogue(lambda acc, bias: functional.relu(acc + traced.Clipped.apply(bias)))
    x, weight = torch.randn(M, K), torch.randn(N, K, requires_grad=True)
    bias = torch.zeros(N, requires_grad=True)
    y = clipped(x, weight, bias=bias)
    assert "LinearEpilogue" not in y.grad_fn.name()
    (10 * y).sum().backward()
    assert bias.grad.abs().max() <= 1 and weight.grad.abs().max() > 1


@pytest.mark.parametrize("name", ["geglu", "pre_activation", "scale_shift"])
def test_compiled(name):
    """Forward and backward in one graph, with the op and its gradient's."""
    torch._dynamo.reset()
    case = CASES[name]
    made = epilogue(case.function)
    names = list(case.operands)

    def run(x, weight, *operands):
        results = made(x, weight, **dict(zip(names, operands, strict=True)))
        return results if isinstance(results, tuple) else (results,)

    tensors = make(case, torch.float32)
    expected = differentiate(run(*tensors), tensors)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_close(differentiate(compiled(*tensors), tensors), expected)


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    case = CASES["geglu"]
    tensors = make(case)
    expected = differentiate(call(case, tensors), tensors)
    results = checkpoint(lambda *tensors: call(case, tensors), *tensors, use_reentrant=False)
    assert_close(differentiate(results, tensors), expected)


class Packed:
    """What stands for a tensor that a graph keeps."""

    def __init__(self, tensor):
        self.tensor = tensor


def test_no_reference_is_kept():
    """The graph dies with its results."""
    import gc
    import weakref

    case, kept = CASES["geglu"], []

    def pack(tensor):
        packed = Packed(tensor.detach())  # a result of the graph would hold it itself
        kept.append(weakref.ref(packed))
        return packed

    tensors = make(case)
    gc.disable()
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor):
            (y,) = call(case, tensors)
        assert kept and all(each() is not None for each in kept)
        del y
        assert all(each() is None for each in kept)
    finally:
        gc.enable()


RESULTS = {
    "two": lambda acc: (acc * 2.0, torch.sigmoid(acc)),
    "a norm": lambda acc: functional.layer_norm(acc, (N,)),
    "softmax": lambda acc: torch.softmax(acc, -1),
}


@pytest.mark.parametrize("shape", [(M, K), (2, 3, K)], ids=["matrix", "batch"])
@pytest.mark.parametrize("name", RESULTS)
def test_results_in_place(name, shape):
    """They are no views, which PyTorch would refuse to change."""
    torch.manual_seed(5)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(N, K, dtype=torch.float64, requires_grad=True)
    found = []
    for change in (torch.mul, torch.Tensor.mul_):
        y = epilogue(RESULTS[name])(x, weight)
        y = y[0] if isinstance(y, tuple) else y
        found.append(torch.autograd.grad(change(y, 2.0).sin().sum(), (x, weight)))
    assert_close(*found)


def test_acc_in_place():
    """A function that writes to acc, and whose second gradient is that of PyTorch's ops: what is
    kept stays as it was, for a second backward pass too."""

    def function(acc, gate):
        z = acc.mul_(2)
        return z * gate + (z.round() - z).detach() * z

    def differentiate_twice(call):
        torch.manual_seed(0)
        shapes = (M, K), (N, K), (N,)
        tensors = [torch.randn(each, dtype=torch.float64, requires_grad=True) for each in shapes]
        y, found = call(*tensors), []
        for _ in range(2):
            options = {"create_graph": True, "retain_graph": True}
            first = torch.autograd.grad(y.sin().sum(), tensors, **options)
            summed = sum(each.sum() for each in first)
            found += [*first, *torch.autograd.grad(summed, tensors, retain_graph=True)]
        return found

    ours = epilogue(function)
    found = differentiate_twice(lambda x, weight, gate: ours(x, weight, gate=gate))
    assert_close(found, differentiate_twice(lambda x, w, gate: function(x @ w.t(), gate)))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda acc, b: torch.sin(acc + b) * b, id="product"),
        pytest.param(lambda acc, b: torch.sin(acc + b) + b.exp(), id="sum"),
    ],
)
def test_an_operand_of_a_sum_that_is_read_alone_too(function):
    """Its gradient is not that of the sum."""
    x, weight, b = (torch.randn(size).double().requires_grad_() for size in ((5, 6), (4, 6), (4,)))
    inputs = x, weight, b
    found = torch.autograd.grad(epilogue(function)(x, weight, b=b).sum(), inputs)
    expected = torch.autograd.grad(function(x @ weight.T, b).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
