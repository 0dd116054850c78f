"""What a recording would go past without an error: such a forward is left alone."""

import copy
import itertools

import numpy as np
import pytest
import torch
from linear_tails import K, N
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import cutlass_fused

_seen: list = []
_ticks = itertools.count(1)
_draws = np.random.default_rng(0)


class Holder(nn.Module):
    """A model whose forward is given."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.layers = nn.Linear(K, N), nn.ModuleDict({"last": nn.Linear(N, N)})


class Straight(torch.autograd.Function):
    """With a gradient that is none of its forward."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad * 3.0


class GradientOfItsOwn(Holder):
    def forward(self, x):
        return Straight.apply(F.relu(self.fc(x)) * 2.0)


class Checkpoints(Holder):
    def part(self, x):
        return F.gelu(self.fc(x)) * 2.0

    def forward(self, x):
        return checkpoint(self.part, x, use_reentrant=False)


class CheckpointsReentrant(Checkpoints):
    def forward(self, x):
        return checkpoint(self.part, x, use_reentrant=True)


class DropsByNumbers(Holder):
    def forward(self, x):
        return F.relu(self.fc(x)) * torch.rand(()).item()


class DropsByBranches(Holder):
    def forward(self, x):
        z = F.relu(self.fc(x))
        return z * 2.0 if torch.rand(1) < 0.5 else z


class DrawsByNumpy(Holder):
    def forward(self, x):
        return F.relu(self.fc(x)) * float(_draws.normal())


class AsksForDtypes(Holder):
    def forward(self, x):
        return F.relu(self.fc(x.to(next(self.parameters()).dtype)))


class ListsChildren(Holder):
    def forward(self, x):
        for child in self.layers.children():
            x = child(x) if child.in_features == x.shape[-1] else child(self.fc(x))
        return F.relu(x)


class AppendsToGlobals(Holder):
    def forward(self, x):
        z = F.relu(self.fc(x))
        _seen.append(z)
        return z * len(_seen)


class Counts(Holder):
    def forward(self, x):
        return F.relu(self.fc(x)) * next(_ticks)


class WritesToItsDefault(Holder):
    def forward(self, x, kept={}):  # noqa: B006
        kept["z"] = F.relu(self.fc(x))
        return kept["z"] * 2.0


def _close_over():
    factors = [1.0]

    class ReadsFactors(Holder):
        def forward(self, x):
            factors[0] += 1.0
            return F.relu(self.fc(x)) * factors[0]

    return ReadsFactors()


MODELS = {
    GradientOfItsOwn: "calls a torch.autograd.Function",
    Checkpoints: "calls torch.utils.checkpoint",
    CheckpointsReentrant: "calls torch.utils.checkpoint",
    DropsByNumbers: "makes a tensor that does not come from its arguments",
    DropsByBranches: "makes a tensor that does not come from its arguments",
    DrawsByNumpy: "uses normal",
    AsksForDtypes: "reads parameters()",
    ListsChildren: "reads children()",
    AppendsToGlobals: "reads _seen, a list",
    Counts: "reads _ticks, a count",
    WritesToItsDefault: "default of kept is a dict",
    _close_over: "reads factors, a list",
}


@pytest.fixture(autouse=True)
def _forget():
    _seen.clear()


@pytest.mark.parametrize(("make", "why"), MODELS.items())
def test_is_left_alone(make, why):
    """Its Linear is served by itself."""
    model = make()
    report = cutlass_fused.fuse(model)
    assert any(why in left.why for left in report.left), report
    assert "forward" not in model.__dict__ and not _seen
    assert "fc" in [site.where for site in report.sites]
    model(torch.randn(3, K))
    assert all(isinstance(each, torch.Tensor) for each in _seen)


@pytest.mark.parametrize("kind", [GradientOfItsOwn, Checkpoints, DropsByBranches])
def test_gradients(kind):
    model = kind().double()
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    for seed in range(4):
        found = []
        for each in (model, plain):
            torch.manual_seed(seed)
            x = torch.randn(3, K, dtype=torch.float64, requires_grad=True)
            found.append(torch.autograd.grad(each(x).sum(), [x, each.fc.weight]))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_children_and_dtypes_that_change():
    model = AsksForDtypes()
    cutlass_fused.fuse(model)
    assert model.double()(torch.randn(3, K)).dtype == torch.float64
    model = ListsChildren()
    cutlass_fused.fuse(model)
    model.layers["more"] = nn.Linear(N, N)
    plain, x = copy.deepcopy(model), torch.randn(3, K)
    torch.testing.assert_close(model(x), cutlass_fused.unfuse(plain)(x))


class ListsOfItsOwn(Holder):
    """Which functions within the forward read."""

    def forward(self, x):
        weights, kept = [1.0, 2.0], []
        total = sum(F.relu(self.fc(x)) * weights[i] for i in range(2))

        def keep(y):
            kept.append(y)
            return [each + len(kept) for each in kept]

        return keep(torch.tanh(total))[0]


def test_lists_of_the_forward_itself():
    model = ListsOfItsOwn()
    plain, x = copy.deepcopy(model), torch.randn(3, K)
    report = cutlass_fused.fuse(model)
    assert [site.where for site in report.sites].count("fc") == 2
    assert not report.left
    torch.testing.assert_close(model(x), plain(x))
