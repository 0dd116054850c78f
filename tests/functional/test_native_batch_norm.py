"""batch_norm in training, with gradients in C++: that they are those of Python."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad

from cutlass_fused import functional, nn
from cutlass_fused.functional._derived import native

pytestmark = pytest.mark.skipif(not native.is_defined(), reason="gradients are in Python")

M, N = 9, 6
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What is there beside x: gamma, beta, running statistics; and the dtype of gamma and beta.
GIVEN = list(itertools.product((True, False), (True, False), (True, False)))


def make(dtype=torch.float64, has_gamma=True, has_beta=True, tracked=True, of_vectors=None):
    torch.manual_seed(0)
    x = torch.randn(M, N).to(dtype).requires_grad_()
    vectors = [
        (torch.rand(N) + 0.5).to(of_vectors or dtype).requires_grad_() if is_there else None
        for is_there in (has_gamma, has_beta)
    ]
    statistics = (None, None, None)
    if tracked:
        wide = torch.promote_types(dtype, torch.float32)
        statistics = torch.zeros(N, dtype=wide), torch.ones(N, dtype=wide), torch.tensor(0)
    return [x, *vectors], statistics


def run(leaves, statistics, **options):
    (x, gamma, beta), (mean, var, count) = leaves, statistics
    given = (x, mean, var, gamma, beta, True)
    return functional.batch_norm(*given, num_batches_tracked=count, **options)


def is_native(y):
    return type(y.grad_fn).__name__ == "CppFunction"


def leave_to_python(monkeypatch):
    monkeypatch.setattr(native, "serves_batch_norm", lambda *_: False)


def take_gradients(orders, *given, **options):
    """y, the gradients of all leaves that are there, in so many orders, and the statistics."""
    leaves, statistics = make(*given)
    y = run(leaves, statistics, **options)
    results, asked = [y], [leaf for leaf in leaves if leaf is not None]
    value = y
    for order in range(orders):
        more = order + 1 < orders
        grads = torch.autograd.grad(value.float().sin().sum(), asked, create_graph=more)
        results += grads
        value = grads[0]
    return is_native(y), [*results, *(each for each in statistics if each is not None)]


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_those_in_python(dtype, given, monkeypatch):
    for orders, of_vectors in itertools.product((1, 2), (None, torch.float32)):
        if dtype == torch.float64 and of_vectors is not None:
            continue
        all_given = (orders, dtype, *given, of_vectors)
        with monkeypatch.context() as patch:
            is_ours, results = take_gradients(*all_given)
            leave_to_python(patch)
            is_others, expected = take_gradients(*all_given)
        assert is_ours and not is_others
        for mine, theirs in zip(results, expected, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{"momentum": None}, {"eps": 0.5}], ids=str)
def test_options(options, monkeypatch):
    _, results = take_gradients(1, torch.float32, **options)
    leave_to_python(monkeypatch)
    _, expected = take_gradients(1, torch.float32, **options)
    torch.testing.assert_close(results, expected)


def test_all_orders():
    leaves, _ = make()
    norm = lambda *leaves: run(leaves, (None, None, None))  # noqa: E731
    assert torch.autograd.gradcheck(norm, leaves) and torch.autograd.gradgradcheck(norm, leaves)


@pytest.mark.parametrize("asked", range(3))
def test_one_gradient_alone(asked):
    leaves, statistics = make()
    expected = torch.autograd.grad(run(leaves, statistics).sin().sum(), leaves)[asked]
    for i, leaf in enumerate(leaves):
        leaf.requires_grad_(i == asked)
    y = run(leaves, statistics)
    assert is_native(y)
    torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), leaves[asked])[0], expected)


def test_a_batch_of_gradients():
    leaves, statistics = make()
    y = run(leaves, statistics)
    grads = torch.randn(3, M, N, dtype=torch.float64)
    options = {"retain_graph": True}
    found = torch.autograd.grad(y, leaves, grads, is_grads_batched=True, **options)
    each = [torch.autograd.grad(y, leaves, grad, **options) for grad in grads]
    for one, *others in zip(found, *each, strict=True):
        torch.testing.assert_close(one, torch.stack(others))


def test_backward_passes_of_any_size_are_compiled():
    """By compiled autograd, which takes sizes for symbols."""
    torch._dynamo.reset()
    compiler = torch.compile(backend="eager", dynamic=True)
    for rows in (9, 12, 17):
        leaves, statistics = make()
        leaves[0] = torch.randn(rows, N, dtype=torch.float64, requires_grad=True)
        expected = torch.autograd.grad(run(leaves, statistics).sin().sum(), leaves)
        y = run(leaves, statistics)
        assert is_native(y)
        with torch._dynamo.compiled_autograd._enable(compiler):
            y.sin().sum().backward()
        for leaf, grad in zip(leaves, expected, strict=True):
            torch.testing.assert_close(leaf.grad, grad)


def test_tangents_of_gradients():
    """Forward mode over a backward pass whose forward pass was plain."""
    leaves, statistics = make()
    y = run(leaves, statistics)
    grad, tangent = torch.randn_like(y), torch.randn_like(y)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad, tangent)
        duals = torch.autograd.grad(y, leaves, dual, retain_graph=True)
        found = [forward_ad.unpack_dual(each).tangent for each in duals]
    torch.testing.assert_close(tuple(found), torch.autograd.grad(y, leaves, tangent))


def test_statistics_are_moved_once_and_counted():
    leaves, statistics = make()
    versions = [each._version for each in statistics]
    y = run(leaves, statistics)
    moved = [each.clone() for each in statistics]
    for _ in range(2):
        torch.autograd.grad(y.square().sum(), leaves[0], retain_graph=True)
    assert statistics[2] == 1 and all(map(torch.equal, statistics, moved))
    assert all(now._version > then for now, then in zip(statistics, versions, strict=True))


def test_what_changed_in_between_is_refused():
    leaves, statistics = make()
    y = run(leaves, statistics)
    with torch.no_grad():
        leaves[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_is_left_to_python():
    class Other(torch.Tensor):
        pass

    leaves, statistics = make()
    assert not is_native(run([leaves[0], leaves[1].as_subclass(Other), leaves[2]], statistics))
    assert not is_native(run([leaves[0].as_subclass(Other), *leaves[1:]], statistics))


def test_a_tensor_that_cannot_be_saved_moves_nothing():
    leaves, statistics = make()
    with torch.inference_mode():
        gamma = torch.ones(N, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="gamma must be no tensor of torch.inference_mode"):
        run([leaves[0], gamma, leaves[2]], statistics)
    assert statistics[2] == 0 and not statistics[0].any()


def test_a_hook_that_raises_moves_nothing():
    leaves, statistics = make()

    def pack(_):
        raise ValueError("no")

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed)
    with hooks, pytest.raises(ValueError, match="no"):
        run(leaves, statistics)
    assert statistics[2] == 0 and not statistics[0].any()


def test_the_module_is_served():
    norm, plain = nn.BatchNorm1d(N), torch.nn.BatchNorm1d(N)
    x = torch.randn(M, N, requires_grad=True)
    y, expected = norm(x), plain(x)
    assert is_native(y)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(norm.running_var, plain.running_var)
    for one, other in zip(
        torch.autograd.grad(y.sin().sum(), [x, norm.weight, norm.bias]),
        torch.autograd.grad(expected.sin().sum(), [x, plain.weight, plain.bias]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
