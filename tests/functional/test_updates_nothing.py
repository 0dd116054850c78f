"""A training call that raises has updated nothing, also where PyTorch raises behind the kernels."""

import pytest
import torch
from norm_functions import FUNCTIONS, FUSED, K, M, N, call, make_leaves

from cutlass_fused import nn

pytestmark = pytest.mark.usefixtures("language")

each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=str)


def make_tracked():
    return torch.randn(N), torch.rand(N) + 0.5, torch.tensor(3)


def run(function, leaves, tracked):
    options = {"num_batches_tracked": tracked[2]}
    return call(function.ours, leaves, tracked[:2], True, **options)


def draw_leaves(function):
    return {name: leaf.detach().float() for name, leaf in make_leaves(function).items()}


def assert_unchanged(tracked, before):
    for tensor, value in zip(tracked, before, strict=True):
        assert torch.equal(tensor, value)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@each_function
def test_hook_that_raises(function, last):
    """A hook of saved tensors: when it is asked for the first of them, or for the last."""
    leaves = {name: leaf.requires_grad_() for name, leaf in draw_leaves(function).items()}
    count = []

    def pack(tensor):
        count.append(tensor)
        if len(count) == wanted:
            raise MemoryError("pack")
        return tensor

    wanted = 0
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(function, leaves, make_tracked())
        wanted = len(count) if last else 1
        count.clear()
        tracked = make_tracked()
        before = [tensor.clone() for tensor in tracked]
        with pytest.raises(MemoryError, match="pack"):
            run(function, leaves, tracked)
    assert_unchanged(tracked, before)


@pytest.mark.parametrize("kind", ["rows", "sparse"])
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_hook_that_raises_between_the_parts(function, kind):
    """Where they run one by one: whichever saved tensor it raises at."""
    leaves = draw_leaves(function)
    if kind == "rows":
        leaves["scale"] = torch.rand(M, 1) + 0.5
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    if kind == "sparse":
        leaves["x"] = leaves["x"].detach().to_sparse()
    count = []

    def pack(tensor):
        count.append(tensor)
        if len(count) == wanted:
            raise MemoryError("pack")
        return tensor

    wanted = 0
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(function, leaves, make_tracked())
        for wanted in range(1, len(count) + 1):  # noqa: B007 (pack reads it)
            count.clear()
            tracked = make_tracked()
            before = [tensor.clone() for tensor in tracked]
            with pytest.raises(MemoryError, match="pack"):
                run(function, leaves, tracked)
            assert_unchanged(tracked, before)


@pytest.mark.parametrize("name", ["x", "weight", "scale", "gamma", "beta"])
@each_function
def test_tensors_of_inference_mode(function, name):
    """Refused where the backward pass reads them, in front of the kernels; others are served."""
    leaves = draw_leaves(function)
    if name not in leaves:
        leaves = dict(leaves)
        name = "gamma"
    with torch.inference_mode():
        leaves[name] = leaves[name].clone()
    for other, leaf in leaves.items():
        if other != name:
            leaf.requires_grad_()
    tracked = make_tracked()
    before = [tensor.clone() for tensor in tracked]
    try:
        run(function, leaves, tracked).sum().backward()
    except RuntimeError as error:
        expected = f"{function}: {name} must be no tensor of torch.inference_mode"
        assert str(error).startswith(expected), error
        assert_unchanged(tracked, before)
    else:
        assert name == "beta" and tracked[2] == 4


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", ["LinearScaleBatchNorm1d", "LinearBatchNorm1dScaleSoftmax"])
def test_checkpoints_count_twice(kind, behind):
    """The plain modules do so too, also where the second run is stopped by what it saves last."""
    module = getattr(nn, kind)(K, N, scale_shape=(N,))
    run = torch.nn.Sequential(module, torch.nn.Tanh()) if behind else module
    x = torch.randn(M, K, requires_grad=True)
    torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False).sum().backward()
    assert module.bn.num_batches_tracked == 2


def test_hooks_that_do_not_raise_change_nothing_else():
    function = FUNCTIONS[0]
    leaves = {name: leaf.requires_grad_() for name, leaf in draw_leaves(function).items()}
    tracked = make_tracked()
    expected = [tensor.clone() for tensor in tracked]
    y = run(function, leaves, expected)
    with torch.autograd.graph.save_on_cpu():
        assert torch.equal(run(function, leaves, tracked), y)
    assert_unchanged(tracked, expected)
    assert y.shape == (M, N) and leaves["weight"].shape == (N, K)
