"""Chains that a call cannot take whole: a shorter one is served, and PyTorch's ops follow."""

import copy

import pytest
import torch
from judge_epilogues import assert_as_good
from linear_tails import Behind, K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused

M = 6  # neither K nor N


def _row():
    return nn.Parameter(torch.randn(N))


# A tail, its parts, the shape of x, and what one call computes of the chain.
CHAINS = {
    "a column beside a matrix of another width": (
        lambda m, z, x: F.gelu(torch.logsumexp(z - m.b, dim=1, keepdim=True)) + x.detach(),
        {"b": _row},
        (M, K),
        ["Linear", "sub", "logsumexp", "gelu"],
    ),
    "two of them": (
        lambda m, z, x: (torch.tanh(z).mean(dim=1, keepdim=True) + x) * x,
        {},
        (M, K),
        ["Linear", "tanh", "mean"],
    ),
    "softmax along rows of batches": (
        lambda m, z, x: F.gelu(z * 2.0).softmax(dim=1),
        {},
        (3, M, K),
        ["Linear", "mul", "gelu"],
    ),
    "softmax behind a column": (
        lambda m, z, x: (z.sum(dim=-1, keepdim=True) * x).softmax(dim=1),
        {},
        (3, M, K),
        ["Linear", "sum"],
    ),
    "batch norm of channels": (
        lambda m, z, x: m.bn(z),
        {"bn": lambda: nn.BatchNorm1d(M)},
        (3, M, K),
        ["Linear"],
    ),
    "softmax of the product": (lambda m, z, x: z.softmax(dim=1), {}, (3, M, K), ["Linear"]),
}
every_chain = pytest.mark.parametrize("name", CHAINS)


def make(name, dtype=torch.float32):
    tail, parts, *_ = CHAINS[name]
    plain = Behind(tail, **{key: part() for key, part in parts.items()}).to(dtype)
    fused = copy.deepcopy(plain)
    return plain, fused, cutlass_fused.fuse(fused)


def list_results(model, x):
    y = model(x)
    weight = torch.linspace(-1, 1, y.numel()).view_as(y).to(y)
    inputs = [x, *model.parameters()]
    grads = torch.autograd.grad((y * weight).sum(), inputs)
    return [y, *grads, *model.buffers()]


@every_chain
def test_serves_what_it_can(name):
    plain, fused, report = make(name)
    for _ in range(2):  # the call that decides, and one that has decided
        x = torch.randn(CHAINS[name][2])
        torch.testing.assert_close(fused(x), plain(x))
        for ours, theirs in zip(fused.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs)
    (site,) = report.sites
    assert site.last.why is not None
    assert site.last.instead.list_names() == CHAINS[name][3]
    assert f"the last call was only {' + '.join(CHAINS[name][3])}:" in str(report)


@every_chain
def test_right(name):
    drawn = []
    for _ in range(8):  # the error of so few numbers is luck
        plain, fused, _ = make(name)
        wide, x = copy.deepcopy(plain).double(), torch.randn(CHAINS[name][2], requires_grad=True)
        truth = list_results(wide, x.detach().double().requires_grad_())
        drawn.append((list_results(fused, x), list_results(plain, x), truth))
    for index, parts in enumerate(zip(*(zip(*each, strict=True) for each in drawn), strict=True)):
        of_each = zip(*parts, strict=True)
        ours, eager, truth = (torch.stack([t.detach() for t in each]) for each in of_each)
        if ours.dtype == torch.int64:
            assert torch.equal(ours, eager)
        else:
            assert_as_good(ours, eager, truth, index)


def test_matrices_are_served_whole():
    """By the same site, which then serves batches again."""
    plain, fused, report = make("softmax along rows of batches")
    for shape in ((3, M, K), (M, K), (3, M, K), (M, K)):
        x = torch.randn(shape)
        torch.testing.assert_close(fused(x), plain(x))
    assert report.sites[0].last.why is None  # decided last, by the second call


def test_of_matrices_as_nodes():
    """The weight and the bias of the product are nodes, which the shorter chain takes too."""

    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(N, K)), _row()

        def forward(self, x):
            return torch.tanh(F.linear(x, self.weight, self.bias)).softmax(dim=1) * x.sum()

    model = Functional()
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model)
    x = torch.randn(3, M, K)
    for _ in range(2):
        torch.testing.assert_close(model(x), plain(x))
    assert report.sites[0].last.instead.list_names() == ["linear", "tanh"]


def test_what_no_op_takes_raises_as_before():
    model = Behind(lambda m, z, x: torch.tanh(z) + x)  # of N columns and of K
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    x = torch.randn(M, K)
    with pytest.raises(RuntimeError, match="must match the size") as theirs:
        plain(x)
    with pytest.raises(RuntimeError, match="must match the size") as ours:
        model(x)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("tail", [torch.mm, lambda x, w: torch.addmm(w[0], x, w)])
def test_products_of_matrices_alone(tail):
    class Multiplies(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(K, K))
            self.b = nn.Parameter(torch.rand(K))

        def forward(self, x):
            return torch.relu(tail(x, self.w))

    model = Multiplies()
    cutlass_fused.fuse(model)
    model(torch.randn(6, K))
    with pytest.raises(RuntimeError, match="matri"):
        model(torch.randn(2, 3, K))


def test_hooks_reach_the_shorter_chain():
    model = Behind(lambda m, z, x: m.act(z).softmax(dim=1), act=nn.Tanh())
    cutlass_fused.fuse(model)
    x = torch.randn(3, M, K)
    before, seen = model(x), []
    hook = model.act.register_forward_hook(lambda m, args, y: seen.append(1))
    torch.testing.assert_close(model(x), before)
    assert seen == [1]
    hook.remove()
    torch.testing.assert_close(model(x), before)
    assert seen == [1]
