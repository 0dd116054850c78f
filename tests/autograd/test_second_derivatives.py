"""Derivatives of gradients, on the CPU in float64: gradgradcheck, then beside the plain models."""

import contextlib

import pytest
import torch
from differentiated import EACH, each_case, every_case
from norm_functions import FUNCTIONS, call, make_leaves, make_statistics
from recorded_ops import RecordOps
from torch._dynamo import compiled_autograd
from torch.autograd import gradgradcheck

pytestmark = pytest.mark.usefixtures("products")


@every_case
def test_gradgradcheck(case):
    assert gradgradcheck(case.run, tuple(case.make().values()))


@each_case
def test_batches_of_gradients(case):
    """torch.func.vmap around the second pass, and forward mode around the first."""
    leaves = case.make()
    if "train" in case.name and "bias" in leaves:
        # Of a gradient that is the constant 0 in one mode alone gradcheck loses count.
        leaves["bias"].requires_grad_(False)
    leaves = tuple(leaves.values())
    options = {"check_batched_grad": True, "check_fwd_over_rev": True, "check_rev_over_rev": True}
    assert gradgradcheck(case.run, leaves, **options)


def third(run, leaves):
    """Gradients of a function of gradients of a function of gradients; a loss at each step, so that
    nothing is linear."""
    y = run(*leaves).sin().sum()
    for _ in range(2):
        grads = torch.autograd.grad(y, leaves, create_graph=True, allow_unused=True)
        y = sum((grad * grad.cos()).sum() for grad in grads if grad is not None)
    return torch.autograd.grad(y, leaves, allow_unused=True, materialize_grads=True)


@every_case
def test_third_order(case):
    leaves = tuple(case.make().values())
    ours, plain = third(case.run, leaves), third(case.run_plain, leaves)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)


@each_case
def test_each_pair_of_leaves(case):
    """What one asks for reaches the other, whichever else asks for a gradient."""
    make = case.make
    names = list(make())
    for first in names:
        for second in names:
            leaves = make()
            for name, leaf in leaves.items():
                leaf.requires_grad_(name in (first, second))
            results = []
            for run in (case.ours, case.plain):
                y = run(leaves).sin().sum()
                (grad,) = torch.autograd.grad(y, leaves[first], create_graph=True)
                loss = y + grad.square().sum()
                results.append(torch.autograd.grad(loss, leaves[second]))
            torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_statistics_are_moved_once(function):
    """Not by a pass that goes back to them."""
    leaves, results = make_leaves(function), []
    for run in (function.ours, function.plain):
        torch.manual_seed(3)
        statistics = make_statistics()
        y = call(run, leaves, statistics, True)
        (grad,) = torch.autograd.grad(y.sin().sum(), leaves["x"], create_graph=True)
        results.append((*torch.autograd.grad(grad.square().sum(), leaves["x"]), *statistics))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_no_forward_pass_is_run_again(function):
    leaves = make_leaves(function)
    y = call(function.ours, leaves, make_statistics(), True)
    with RecordOps() as record:
        (grad,) = torch.autograd.grad(y.sin().sum(), leaves["x"], create_graph=True)
        grad.square().sum().backward()
    assert not any(name.endswith("_train") for name in record.names)


@each_case
def test_retained_graphs_and_checkpoints(case):
    leaves = tuple(case.make().values())

    def checkpointed(*tensors):
        return torch.utils.checkpoint.checkpoint(case.run, *tensors, use_reentrant=False)

    results = []
    for run in (case.run, checkpointed):
        y = run(*leaves).sin().sum()
        (grad,) = torch.autograd.grad(y, leaves[0], create_graph=True)
        for _ in range(2):
            loss = grad.square().sum()
            results.append(torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)


WITH_OUTPUTS = [case for case in EACH if "train" in case.name or case.name.endswith("0.1 scale")]


@pytest.mark.parametrize("products", ["PyTorch"], indirect=True)
@pytest.mark.parametrize("case", WITH_OUTPUTS, ids=lambda case: case.name)
def test_compiled_autograd(case):
    """Of calls that were eager: what comes back to them by other outputs than y is not lost."""
    leaves, results = tuple(case.make().values()), []
    for compiled in (False, True):
        y = case.run(*leaves).sin().sum()
        grads = torch.autograd.grad(y, leaves, create_graph=True)
        loss = sum(grad.square().sum() for grad in grads)
        compiler = torch.compile(backend="eager")
        with compiled_autograd._enable(compiler) if compiled else contextlib.nullcontext():
            results.append(torch.autograd.grad(loss, leaves, allow_unused=True))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_case
def test_16_bits(case, dtype):
    """Each result has the dtype of its leaf, and is near that of float64."""
    exact = [t.detach().to(dtype).double().requires_grad_() for t in case.make().values()]
    narrow = [t.detach().to(dtype).requires_grad_() for t in exact]
    results = []
    for leaves in (narrow, exact):
        y = case.run(*leaves)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
        (grad,) = torch.autograd.grad((y * y * weights).sum(), leaves[0], create_graph=True)
        results.append(torch.autograd.grad(grad.square().sum(), leaves, allow_unused=True))
    for leaf, ours, truth in zip(narrow, *results, strict=True):
        if truth is not None and ours is not None:
            assert ours.dtype == leaf.dtype
            size = truth.abs().max().clamp(min=1.0)
            limit = 32 * torch.finfo(dtype).eps * size
            assert (ours.double() - truth).abs().max() <= limit
