"""Programs of rows whose gradients are C++'s: in the first order, and by PyTorch's ops beyond."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from cutlass_fused.functional._derived import native as native_calls
from cutlass_fused.programs import native
from cutlass_fused.programs.epilogue import epilogue

M, N, K = 6, 8, 4

pytestmark = pytest.mark.skipif(
    not native_calls.is_defined(), reason="the library of the switch is not built"
)


@epilogue
def softmax(acc, bias):
    return F.softmax(F.gelu(acc + bias), dim=-1)


@epilogue
def log_sum_exp(acc, bias):
    return torch.logsumexp(acc + bias, 1)


@epilogue
def norm(acc, bias, gamma, scale, factor=0.5):
    return F.layer_norm(acc + bias, acc.shape[1:], gamma) * scale * factor


@epilogue
def mean_of_a_row(acc, bias):
    return torch.tanh((acc + bias).mean(1, keepdim=True))


@epilogue
def windows(acc, bias):
    return F.gelu(F.avg_pool1d(acc + bias, 2)) * 2.0


@epilogue
def largest_of_groups(acc, bias):
    return torch.tanh((acc + bias).unflatten(1, (2, -1)).amax(-1))


FUNCTIONS = {
    "windows": (windows, {"bias": (N,)}),
    "largest_of_groups": (largest_of_groups, {"bias": (N,)}),
    "softmax": (softmax, {"bias": (N,)}),
    "log_sum_exp": (log_sum_exp, {"bias": (N,)}),
    "norm": (norm, {"bias": (N,), "gamma": (N,), "scale": (M, 1)}),
    "mean": (mean_of_a_row, {"bias": (N,)}),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.fixture
def calls(monkeypatch):
    """Of C++."""
    made, run = [], native.run
    monkeypatch.setattr(native, "run", lambda *given: made.append(given) or run(*given))
    return made


@pytest.fixture(params=["C++", "Python"])
def each_language(request, monkeypatch):
    """Of calls that have been written for C++ already, too."""
    if request.param == "Python":
        monkeypatch.setattr(native, "takes", lambda: False)
    return request.param


def make(name, dtype=torch.float64):
    """The function, and what it is called with."""
    torch.manual_seed(3)
    function, shapes = FUNCTIONS[name]
    given = [torch.randn(shape, dtype=dtype) for shape in ((M, K), (N, K), *shapes.values())]
    names = list(shapes)

    def run(x, weight, *operands):
        return function(x, weight, **dict(zip(names, operands, strict=True)))

    return run, [each.requires_grad_() for each in given]


def differentiate_thrice(run, given):
    y = run(*given)
    results = [y]
    for _ in range(2):
        found = torch.autograd.grad(y.sin().sum(), given, create_graph=True)
        results += found
        y = found[0]
    return [*results, *torch.autograd.grad(y.pow(3).sum(), given)]


@every_function
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_bits(name, dtype, calls, monkeypatch):
    """Those of Python's. In the third order a sum has its terms in another order."""
    run, given = make(name, dtype)
    found = differentiate_thrice(run, given)
    assert len(calls) == 1
    monkeypatch.setattr(native, "takes", lambda: False)
    expected = differentiate_thrice(run, given)
    assert len(calls) == 1
    last = len(found) - len(given)
    for one, other in zip(found[:last], expected[:last], strict=True):
        assert torch.equal(one, other)
    unit = torch.finfo(dtype).eps
    for one, other in zip(found[last:], expected[last:], strict=True):
        assert (one - other).abs().max() <= 4 * unit * other.abs().max()


@every_function
def test_gradients(name, calls):
    run, given = make(name)
    assert torch.autograd.gradcheck(run, given) and torch.autograd.gradgradcheck(run, given)
    assert calls


@every_function
def test_some_of_the_gradients(name, calls):
    """In both orders, of what is asked for alone."""
    run, given = make(name)
    expected = torch.autograd.grad(run(*given).sin().sum(), given)
    for index in range(len(given)):
        (one,) = torch.autograd.grad(run(*given).sin().sum(), given[index], create_graph=True)
        torch.testing.assert_close(one.detach(), expected[index])
        second = torch.autograd.grad(one.sum(), given, allow_unused=True)
        assert any(each is not None for each in second)
        given[index].requires_grad_(index == 1)
        others = [each for each in given if each.requires_grad]
        found = torch.autograd.grad(run(*given).sin().sum(), others)
        given[index].requires_grad_()
        kept = [each for i, each in enumerate(expected) if i != index or index == 1]
        for each, other in zip(found, kept, strict=True):
            assert torch.equal(each, other)
    assert len(calls) > len(given)


@every_function
def test_batch_of_gradients(name, calls):
    """One backward pass for many gradients, which C++ has no rule for."""
    run, given = make(name)
    y = run(*given)
    grads = torch.randn(3, *y.shape, dtype=y.dtype)
    found = torch.autograd.grad(y, given, grads, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(y, given, grad, retain_graph=True) for grad in grads]
    for one, others in zip(found, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(others))
    assert calls


@every_function
def test_tangent_of_a_gradient(name, calls):
    """Forward mode over a backward pass whose forward pass was plain."""
    run, given = make(name)
    y = run(*given)
    grad, tangent = torch.randn_like(y), torch.randn_like(y)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad, tangent)
        (found,) = torch.autograd.grad(y, given[0], dual, retain_graph=True)
        found = forward_ad.unpack_dual(found).tangent
    (expected,) = torch.autograd.grad(y, given[0], tangent)
    torch.testing.assert_close(found, expected)
    assert calls


def test_leading_dimensions(calls):
    run, given = make("softmax")
    x = given[0].detach().reshape(2, 3, K).requires_grad_()
    y = run(x, *given[1:])
    assert y.shape == (2, 3, N)
    found = torch.autograd.grad(y.sin().sum(), [x, *given[1:]])
    expected = torch.autograd.grad(run(*given).sin().sum(), given)
    torch.testing.assert_close(found[0].reshape(M, K), expected[0])
    torch.testing.assert_close(found[1:], expected[1:])
    assert len(calls) == 2


def test_what_changed_in_between_is_refused(calls):
    """Of what the first order reads, and of what the second does."""
    run, given = make("norm")
    for index in (1, 3):
        y = run(*given)
        with torch.no_grad():
            given[index].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert len(calls) == 2


def test_a_function_that_nobody_else_has(calls):
    """It stays with the graph."""
    function = epilogue(lambda acc, bias: F.softmax(acc + bias, dim=-1))
    _, given = make("softmax")
    y = function(*given[:2], bias=given[2])
    expected = torch.softmax(F.linear(*given), -1)
    del function
    gc.collect()
    for create_graph in (False, True):
        options = {"create_graph": create_graph, "retain_graph": True}
        found = torch.autograd.grad(y[0, 0], given, **options)
        torch.testing.assert_close(found, torch.autograd.grad(expected[0, 0], given, **options))
    assert calls


@epilogue
def two(acc, bias):
    return F.softmax(F.gelu(acc + bias), -1), acc.mean(1, keepdim=True)


def run_twice(first, x, weight, bias):
    """Two layers of the same parameters."""
    return first(first(x, weight, bias), weight, bias)


@pytest.mark.parametrize("results", [1, 2])
def test_layers_that_share_operands(results, each_language, calls):
    """In three orders, beside PyTorch's own ops. What is of two results is Python's."""
    torch.manual_seed(4)
    given = [torch.randn(size, dtype=torch.float64) for size in ((M, N), (N, N), (N,))]
    given = [each.requires_grad_() for each in given]

    def ours(x, weight, bias):
        return softmax(x, weight, bias=bias) if results == 1 else two(x, weight, bias=bias)[0]

    def plain(x, weight, bias):
        return F.softmax(F.gelu(F.linear(x, weight) + bias), -1)

    found, expected = (
        differentiate_thrice(lambda *each, run=run: run_twice(run, *each), given)
        for run in (ours, plain)
    )
    torch.testing.assert_close(found, expected)
    assert len(calls) == (2 if (each_language, results) == ("C++", 1) else 0)


def test_hook_of_a_result(each_language):
    run, given = make("softmax")
    y = run(*given)
    y.register_hook(lambda grad: grad * 2)
    found = torch.autograd.grad(y.sin().sum(), given, create_graph=True)
    expected = torch.autograd.grad(2 * run(*given).sin().sum(), given, create_graph=True)
    torch.testing.assert_close(found, expected)


def test_nothing_is_recorded_that_nobody_asked_for(each_language):
    run, given = make("softmax")
    y = run(*given)
    grads = torch.randn(3, *y.shape, dtype=y.dtype)
    found = torch.autograd.grad(y, given, grads, retain_graph=True, is_grads_batched=True)
    assert not any(each.requires_grad for each in found)


def test_an_operand_without_a_gradient(calls):
    """It has none, not zeros."""
    function = epilogue(lambda acc, bias: F.softmax(acc, -1).detach() * bias)
    _, given = make("softmax")
    y = function(*given[:2], bias=given[2])
    options = {"create_graph": True, "allow_unused": True}
    of_x, of_weight, of_bias = torch.autograd.grad(y.sum(), given, **options)
    assert of_x is None and of_weight is None and of_bias is not None and calls


def test_a_number_of_many_digits():
    function = epilogue(lambda acc, bias, k: F.softmax(acc + bias, -1) if k > 3 else acc)
    given = make("softmax")[1]
    y = function(*given[:2], bias=given[2], k=10**5000)
    torch.testing.assert_close(y, torch.softmax(F.linear(*given), -1))
    assert all(each.isfinite().all() for each in torch.autograd.grad(y[0, 0], given))
