"""Small models with linear layers of every kind: what is fused, and whether it is right."""

import copy

import pytest
import torch
from judge_epilogues import assert_as_good
from linear_tails import CASES, K

import cutlass_fused

M = 6  # neither K nor N, so that rows and columns cannot be taken for each other
every_case = pytest.mark.parametrize("name", CASES)
every_mode = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def make(name, training, dtype=torch.float32):
    """The plain model and one like it that is fused, with what `fuse` says of it."""
    plain = CASES[name].make().to(dtype).train(training)
    fused = copy.deepcopy(plain)
    return plain, fused, cutlass_fused.fuse(fused)


def draw(dtype=torch.float32):
    return torch.randn(M, K, dtype=dtype, requires_grad=True)


def run(model, x):
    """Under a seed, for dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = model(x)
    return y if isinstance(y, tuple) else (y,)


def weigh(results):
    """A loss in which each element counts differently."""
    weights = [torch.linspace(-1, 1, y.numel()).view_as(y).to(y) for y in results]
    return sum((y * weight).sum() for y, weight in zip(results, weights, strict=True))


def list_gradients(model, x, order=1):
    inputs = [x, *model.parameters()]
    found = [weigh(run(model, x))]
    for _ in range(order - 1):
        grads = torch.autograd.grad(found, inputs, create_graph=True, allow_unused=True)
        found = [
            (each * each.cos()).sum() for each in grads if each is not None and each.requires_grad
        ]
    return torch.autograd.grad(found, inputs, allow_unused=True, materialize_grads=True)


@every_mode
@every_case
def test_finds_the_chain(name, training):
    case = CASES[name]
    _, fused, report = make(name, training)
    calls = case.trained if training and case.trained is not None else case.calls
    assert tuple(site.call.function for site in report.sites) == calls
    assert not report.left
    if case.is_whole:
        assert [site.obstacle for site in report.sites] == [""] * len(calls)
    run(fused, draw())
    assert [site.last.why for site in report.sites] == [None] * len(calls)


@every_mode
@every_case
def test_right(name, training):
    """Results, gradients and buffers, beside PyTorch's own, by float64."""
    # The error of so few numbers, as of a gradient of one, is luck: models are drawn eight times.
    drawn = [find_results(name, training) for _ in range(8)]
    for index, parts in enumerate(zip(*(zip(*each, strict=True) for each in drawn), strict=True)):
        of_each = zip(*parts, strict=True)
        ours, eager, truth = (torch.stack([t.detach() for t in each]) for each in of_each)
        if ours.dtype == torch.int64:
            assert torch.equal(ours, eager)
        else:
            assert_as_good(ours, eager, truth, index)


def find_results(name, training):
    """Of the fused model, of the plain one, and of that in float64: results, gradients, buffers."""
    plain, fused, _ = make(name, training)
    wide, x = copy.deepcopy(plain).double(), draw()
    found = [
        [*run(model, given), *list_gradients(model, given), *model.buffers()]
        for model, given in ((fused, x), (plain, x), (wide, x.detach().double().requires_grad_()))
    ]
    if name == "dropout, softmax" and training:
        found[2] = [each.double() for each in found[1]]  # which draws another mask in float64
    return found


@every_mode
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_smooth])
def test_second_gradients(name, training):
    plain, fused, _ = make(name, training, torch.float64)
    x = draw(torch.float64)
    found = zip(list_gradients(fused, x, 2), list_gradients(plain, x, 2), strict=True)
    for ours, theirs in found:
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@every_case
def test_is_as_before_behind_unfuse(name):
    model = CASES[name].make()
    before, names = model.forward, {n: set(m.__dict__) for n, m in model.named_modules()}
    cutlass_fused.fuse(model)
    assert any("forward" in module.__dict__ for module in model.modules())
    assert cutlass_fused.unfuse(model) is model
    assert model.forward == before
    assert {n: set(m.__dict__) for n, m in model.named_modules()} == names


def test_forty():
    assert len(CASES) >= 40
