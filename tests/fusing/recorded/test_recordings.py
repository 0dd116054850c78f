"""What a recording would go past without an error: such a forward is left alone."""

import copy
import itertools
import weakref

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
    DrawsByNumpy: "reads _draws, a Generator",
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


class MayHaveNoBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(N, K)), nn.Parameter(torch.rand(N))
        self.register_buffer("mask", torch.rand(N))

    def forward(self, x):
        z = x @ self.weight.T
        if self.bias is not None:
            z = z + self.bias
        z = torch.tanh(z)
        return z if self.mask is None else z * self.mask


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2.0


def _make_norm():
    return nn.Sequential(nn.Linear(K, N), nn.LayerNorm(N, bias=False))


def _make_batch_norm():
    return nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N), nn.Sigmoid()).eval()


# A model, and what becomes of it: another one.
CHANGES = {
    "no bias": (MayHaveNoBias, lambda m: setattr(m, "bias", None)),
    "no buffer": (MayHaveNoBias, lambda m: setattr(m, "mask", None)),
    "a bias of a norm": (_make_norm, lambda m: setattr(m[1], "bias", nn.Parameter(torch.ones(N)))),
    "the eps of a batch norm": (_make_batch_norm, lambda m: setattr(m[1], "eps", 5.0)),
    "the eps of a norm": (_make_norm, lambda m: setattr(m[1], "eps", 5.0)),
    "a class of a layer": (
        lambda: nn.Sequential(nn.Linear(K, N), nn.ReLU()),
        lambda m: setattr(m[0], "__class__", Doubled),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_behind_fuse(name):
    make, change = CHANGES[name]
    model = make()
    plain, x = copy.deepcopy(model), torch.randn(3, K)
    cutlass_fused.fuse(model)
    torch.testing.assert_close(model(x), plain(x))
    for each in (model, plain):
        change(each)
    torch.testing.assert_close(model(x), plain(x))


class Watches(nn.Module):
    """Whether its last input was freed when something calls `is_freed`."""

    def forward(self, x):
        self.last = weakref.ref(x)
        return x + 1.0

    def is_freed(self):
        return self.last() is None


class Reports(nn.Module):
    def __init__(self, watches) -> None:
        super().__init__()
        self.ask = watches.is_freed

    def forward(self, x):
        self.found = self.ask()
        return x


def test_results_are_freed_when_they_were_read():
    watches = Watches()
    model = nn.Sequential(
        nn.Linear(K, N), nn.ReLU(), watches, nn.Linear(N, N), nn.Tanh(), Reports(watches)
    )
    for fused in (False, True):
        if fused:
            cutlass_fused.fuse(model)
        with torch.no_grad():
            model(torch.randn(3, K))
        assert model[-1].found is True


class Triples(torch.Tensor):
    """For which a function is another one."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            y = function(*args, **(kwargs or {}))
            is_result = isinstance(y, torch.Tensor) and function not in (torch.Tensor.detach,)
            return y * 3.0 if is_result else y


class TakesTensors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(K, N)

    def forward(self, x, weight, bias, scale):
        return torch.tanh(F.linear(x, weight, bias)) * scale + torch.relu(self.fc(x) * scale)


@pytest.mark.parametrize("index", range(4))
def test_tensors_with_functions_of_their_own(index):
    model = TakesTensors()
    plain = copy.deepcopy(model)
    given = [torch.randn(3, K), torch.randn(N, K), torch.randn(N), torch.randn(N)]
    cutlass_fused.fuse(model)
    torch.testing.assert_close(model(*given), plain(*given))
    given[index] = given[index].as_subclass(Triples)
    torch.testing.assert_close(model(*given), plain(*given))


class Words(nn.Module):
    """Parameters and arguments by names that no attribute of Python has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(K, N)
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(N)) for _ in range(2))
        self.shifts = nn.ParameterDict({"a-b": nn.Parameter(torch.rand(N))})
        self.register_parameter("lambda", nn.Parameter(torch.rand(N)))
        self.register_buffer("class", torch.rand(N))

    def forward(self, x):
        z = torch.tanh(self.linear(x) * self.scales[0] + self.shifts["a-b"])
        z = z * getattr(self, "lambda") + getattr(self, "class")
        return self.add(z, **{"in": self.scales[1]})

    def add(self, z, **given):
        return z + given["in"]


def test_names_that_are_no_words_of_python():
    plain = Words()
    model, x = copy.deepcopy(plain), torch.randn(5, K)
    report = cutlass_fused.fuse(model)
    assert [site.call.function for site in report.sites] == ["linear_epilogue, a program"]
    for _ in range(2):
        for one, other in zip(_run_step(model, x), _run_step(plain, x), strict=True):
            torch.testing.assert_close(one, other)
    with torch.no_grad():
        model.scales[1] = nn.Parameter(torch.zeros(N))
        plain.scales[1] = nn.Parameter(torch.zeros(N))
    torch.testing.assert_close(model(x), plain(x))


def _run_step(model, x):
    y = model(x)
    return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]
