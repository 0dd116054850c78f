"""Dropout ends a chain in training. In eval it gives what it is given, and a chain goes on."""

import copy

import pytest
import torch
from linear_tails import Behind, K
from torch import nn
from torch.nn import functional as F

import cutlass_fused

M = 6  # neither K nor N

# A tail, its parts, and what one call computes of it in training and in eval.
CHAINS = {
    "softmax": (
        lambda m, z, x: m.drop(z).softmax(dim=1),
        {"drop": lambda: nn.Dropout(0.5)},
        ["Linear"],
        ["Linear", "Dropout", "softmax"],
    ),
    "in place, and a residual": (
        lambda m, z, x: m.drop(torch.sin(z)).mul_(2.0) + x.sum(1, keepdim=True),
        {"drop": lambda: nn.Dropout(0.5, inplace=True)},
        ["Linear", "sin"],
        ["Linear", "sin", "Dropout", "mul", "add"],
    ),
    "a function": (
        lambda m, z, x: F.dropout(z, 0.5, m.training) * 2.0 + 1.0,
        {},
        ["Linear"],
        ["Linear", "dropout", "mul", "add"],
    ),
    "alpha dropout, selu": (
        lambda m, z, x: F.selu(m.drop(z)) * 0.5,
        {"drop": lambda: nn.AlphaDropout(0.5)},
        ["Linear"],
        ["Linear", "AlphaDropout", "selu", "mul"],
    ),
    # Behind the chain it costs nothing, and the product keeps its own kernel.
    "the last": (
        lambda m, z, x: m.drop(F.gelu(z)),
        {"drop": lambda: nn.Dropout(0.5)},
        ["Linear", "gelu"],
        ["Linear", "gelu"],
    ),
}


def make(name):
    tail, parts, *_ = CHAINS[name]
    plain = Behind(tail, **{key: part() for key, part in parts.items()})
    fused = copy.deepcopy(plain)
    return plain, fused, cutlass_fused.fuse(fused)


def run(model, x):
    """The result and the gradients, from the same random numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = model(x)
    weight = torch.linspace(-1, 1, y.numel()).view_as(y)
    return [y, *torch.autograd.grad((y * weight).sum(), [x, *model.parameters()])]


@pytest.mark.parametrize("name", CHAINS)
def test_follows_the_mode(name):
    plain, fused, report = make(name)
    for training in (True, False, True, False):
        plain.train(training), fused.train(training)
        x = torch.randn(M, K, requires_grad=True)
        for ours, theirs in zip(run(fused, x), run(plain, x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [site.names for site in report.sites] == list(CHAINS[name][2:])
    assert [site.last.why for site in report.sites] == [None, None]


def test_the_mode_of_the_dropout_alone_counts():
    """As where a user samples from a model in eval, in which it was fused."""
    plain, fused, _ = make("softmax")
    cutlass_fused.unfuse(fused)
    report = cutlass_fused.fuse(fused.eval())
    assert report.sites[0].names == ["Linear", "Dropout", "softmax"]
    x = torch.randn(M, K, requires_grad=True)
    for training in (False, True, False):
        for model in (plain, fused):
            model.eval().drop.train(training)
        found = run(fused, x), run(plain, x)
        torch.testing.assert_close(found[0][0], found[1][0])
        assert training == (not torch.allclose(found[0][0], fused.fc(x).softmax(1)))


def test_hooks_end_the_chain():
    plain, fused, report = make("softmax")
    plain.eval(), fused.eval()
    x = torch.randn(M, K)
    fused(x)
    for model in (plain, fused):
        model.drop.register_forward_hook(lambda m, args, y: y * 2.0)
    torch.testing.assert_close(fused(x), plain(x))


def test_what_aliases_is_left():
    """In eval the tensor that dropout gives is the one that it is given, and a write reaches
    both."""

    def tail(m, z, x):
        h = torch.tanh(z)
        return m.drop(h).mul_(2.0), h

    plain = Behind(tail, drop=nn.Dropout(0.5)).eval()
    fused = copy.deepcopy(plain)
    cutlass_fused.fuse(fused)
    x = torch.randn(M, K)
    with torch.no_grad():
        for ours, theirs in zip(fused(x), plain(x), strict=True):
            torch.testing.assert_close(ours, theirs)
