"""What fuse must not touch: it says why, and the model computes what it did."""

import copy
import warnings

import pytest
import torch
from linear_tails import Behind, K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused

flag = 1.0


class Holder(nn.Module):
    """A model whose forward is given."""

    def __init__(self, **parts) -> None:
        super().__init__()
        self.fc = nn.Linear(K, N)
        for name, part in parts.items():
            setattr(self, name, part)


class Branches(Holder):
    def forward(self, x):
        z = self.fc(x)
        return z * 2.0 if z.sum() > 0 else F.relu(z)


class UnderNoGrad(Holder):
    def forward(self, x):
        with torch.no_grad():
            z = self.fc(x)
        return F.relu(z)


class Decorated(Holder):
    @torch.no_grad()
    def forward(self, x):
        return F.relu(self.fc(x))


class DecoratedWithin(Holder):
    @torch.no_grad()
    def embed(self, x):
        return F.relu(self.fc(x))

    def forward(self, x):
        return self.embed(x) + 1.0


class Counts(Holder):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return F.relu(self.fc(x)) * self.calls


class Appends(Holder):
    def forward(self, x):
        self.seen.append(1)
        return F.relu(self.fc(x)) * len(self.seen)


class Draws(Holder):
    def forward(self, x):
        return F.relu(self.fc(x) + torch.randn(N))


class AsksForKinds(Holder):
    def forward(self, x):
        z = self.fc(x)
        return F.relu(z) if isinstance(z, torch.Tensor) else z


class AsksForGradients(Holder):
    def forward(self, x):
        return F.relu(self.fc(x)) if torch.is_grad_enabled() else self.fc(x)


class AnyArguments(Holder):
    def forward(self, *args):
        return F.relu(self.fc(*args))


class Tries(Holder):
    def forward(self, x):
        try:
            return F.relu(self.fc(x))
        except RuntimeError:
            return x


class WritesGlobal(Holder):
    def forward(self, x):
        global flag
        flag = flag + 1.0
        return F.relu(self.fc(x)) * flag


class ReadsSettings(Holder):
    def forward(self, x):
        return F.relu(self.fc(x)) * self.settings["factor"]


class Quantized(nn.Linear):
    def forward(self, x):
        return F.linear(x.round(), self.weight, self.bias)


class Doubled(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x) * 2.0


def draw():
    return torch.randn(6, K)


MODELS = {
    "control flow depends on tensors": Branches,
    "uses isinstance": AsksForKinds,
    "has a `with` or `try`": UnderNoGrad,
    "decorator stands around": Decorated,
    "switches gradients": DecoratedWithin,
    "writes calls of a module": Counts,
    "reads seen of a module, a list": lambda: Appends(seen=[]),
    "makes a tensor": Draws,
    "uses is_grad_enabled": AsksForGradients,
    "takes *args": AnyArguments,
    "writes a global": WritesGlobal,
    "reads settings of a module, a dict": lambda: ReadsSettings(settings={"factor": 2.0}),
}


@pytest.mark.parametrize("why", MODELS)
def test_forward_that_cannot_be_recorded(why):
    """Its Linear is served alone, where the model calls it."""
    model = MODELS[why]()
    plain, x = copy.deepcopy(model), draw()
    report = cutlass_fused.fuse(model)
    assert any(why in left.why for left in report.left), report
    assert "forward" not in model.__dict__
    assert [site.where for site in report.sites] == ["fc"]
    for _ in range(2):  # twice, for what counts
        torch.manual_seed(1)
        globals()["flag"] = 1.0
        y = model(x)
        torch.manual_seed(1)
        globals()["flag"] = 1.0
        expected = plain(x)
        torch.testing.assert_close(y, expected)
        assert y.requires_grad == expected.requires_grad


def check_called_as_it_is(model, x=None, where=None):
    plain, x = copy.deepcopy(model), draw() if x is None else x
    report = cutlass_fused.fuse(model)
    torch.testing.assert_close(model(x), plain(x))
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    return report


def test_subclass_of_linear():
    model = nn.Sequential(Quantized(K, N), nn.ReLU())
    report = check_called_as_it_is(model)
    assert not report.sites
    assert report.left[0].why == "Quantized has a forward of its own"


def test_subclass_of_batch_norm():
    report = check_called_as_it_is(nn.Sequential(nn.Linear(K, N), Doubled(N), nn.ReLU()))
    (site,) = report.sites
    assert (site.call.function, site.obstacle) == (
        "linear",
        "Doubled is a module that no chain holds",
    )


@pytest.mark.parametrize("kind", ["forward hook", "pre-hook", "backward hook"])
@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("of", [0, 1])
def test_hooks(kind, when, of):
    """Those of a module in a chain run, also where they come when it is fused already."""
    model, seen = nn.Sequential(nn.Linear(K, N), nn.GELU(), nn.Linear(N, 3)), []
    add = {
        "forward hook": lambda m: m.register_forward_hook(
            lambda m, args, y: seen.append(m) or y * 2
        ),
        "pre-hook": lambda m: m.register_forward_pre_hook(lambda m, args: seen.append(m)),
        "backward hook": lambda m: m.register_full_backward_hook(lambda m, *_: seen.append(m)),
    }[kind]
    plain = copy.deepcopy(model)
    if when == "before":
        add(model[of])
        cutlass_fused.fuse(model)
    else:
        cutlass_fused.fuse(model)
        model(draw())
        add(model[of])
    x = draw().requires_grad_()
    y = model(x)
    y.sum().backward()
    assert seen == [model[of]]
    add(plain[of])
    torch.testing.assert_close(y, plain(x))


def test_hooks_of_all_modules():
    model, seen = nn.Sequential(nn.Linear(K, N), nn.GELU()), []
    cutlass_fused.fuse(model)
    with nn.modules.module.register_module_forward_hook(lambda m, args, y: seen.append(m)):
        model(draw())
    assert seen == [model[0], model[1], model]


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("kind", ["parametrization", "weight_norm", "spectral_norm"])
def test_weights_that_are_computed(kind, when):
    model = nn.Sequential(nn.Linear(K, N), nn.GELU(), nn.Linear(N, 3)).eval()
    add = {
        "parametrization": lambda m: nn.utils.parametrizations.weight_norm(m),
        "weight_norm": lambda m: nn.utils.weight_norm(m),
        "spectral_norm": lambda m: nn.utils.spectral_norm(m),
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        if when == "before":
            add(model[0])
        report = cutlass_fused.fuse(model)
        model(draw())
        if when == "behind":
            add(model[0])
    x = draw()
    found = model(x)
    cutlass_fused.unfuse(model)
    torch.testing.assert_close(found, model(x))
    if when == "before":
        assert [site.where for site in report.sites] == ["2"]
        assert [left.where for left in report.left] == ["0"]


def test_batch_norm_that_runs_twice():
    model = Behind(lambda m, z, x: F.relu(m.bn(z)) + m.bn(m.other(x)), bn=nn.BatchNorm1d(N))
    model.other = nn.Linear(K, N)
    report = check_called_as_it_is(model)
    assert all(site.call.norm is None for site in report.sites)
    assert "it runs twice" in report.sites[0].obstacle


def test_statistics_that_another_branch_reads():
    model = Behind(lambda m, z, x: m.bn(z) + m.bn.running_mean, bn=nn.BatchNorm1d(N))
    report = check_called_as_it_is(model)
    assert [site.call.function for site in report.sites] == ["linear"]


def test_statistics_that_a_module_may_read():
    """A module of the user's between product and batch norm may do anything."""

    class Reads(nn.Module):
        def __init__(self, bn):
            super().__init__()
            self.held = (bn.running_mean,)

        def forward(self, x):
            return x.sum() + self.held[0].sum()

    def tail(m, z, x):
        y = m.bn(z)
        return F.relu(y + m.reads(x))

    bn = nn.BatchNorm1d(N)
    model = Behind(tail, bn=bn, reads=Reads(bn)).eval()
    report = check_called_as_it_is(model)
    assert report.sites[0].call.function == "linear_scale_batch_norm"


@pytest.mark.parametrize(
    "tail",
    [
        lambda m, z, x: (x.mul_(2.0), F.relu(z))[1],
        lambda m, z, x: (m.count.add_(1.0), F.relu(z) + m.count)[1],
        lambda m, z, x: z.relu_() + z,
        lambda m, z, x: (z.unsqueeze(0).mul_(2.0), F.gelu(z))[1],
    ],
    ids=["x", "a buffer", "read twice", "a view"],
)
def test_writes_within(tail):
    """A product does not move past a write to what it reads."""
    model = Behind(tail)
    model.register_buffer("count", torch.zeros(N))
    with torch.no_grad():
        plain, x = copy.deepcopy(model), draw()
        cutlass_fused.fuse(model)
        given = x.clone(), x.clone()
        torch.testing.assert_close(model(given[0]), plain(given[1]))
        assert torch.equal(*given)
        assert torch.equal(model.count, plain.count)


def test_dropout_draws_as_before():
    model = nn.Sequential(
        nn.Linear(K, N), nn.Dropout(0.5), nn.Linear(N, N), nn.ReLU(), nn.Dropout(0.1)
    )
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    for train in (True, False):
        torch.manual_seed(3)
        found = model.train(train)(x)
        torch.manual_seed(3)
        torch.testing.assert_close(found, plain.train(train)(x))


def test_forward_of_an_instance():
    model = nn.Sequential(nn.Linear(K, N), nn.ReLU())
    model.forward = lambda x: x
    report = cutlass_fused.fuse(model)
    x = draw()
    assert model(x) is x
    assert report.left[0].why == "the instance has a forward of its own"
    model = nn.Sequential(nn.Linear(K, N), nn.ReLU())
    model[0].forward = lambda x: x
    assert not cutlass_fused.fuse(model).sites
    assert torch.equal(model(x), x.relu())


@pytest.mark.parametrize(
    "tail",
    [
        lambda m, z, x: z.cumsum(1),
        lambda m, z, x: z.sum(0),
        lambda m, z, x: z.double() * 2.0,
        lambda m, z, x: F.softmax(z, dim=0),
        lambda m, z, x: z / x.shape[0],
        lambda m, z, x: z[:, :3],
        lambda m, z, x: z.argmax(1),
        lambda m, z, x: z @ z.T,
        lambda m, z, x: F.dropout(z, 0.0),
    ],
    ids=[
        "cumsum",
        "rows",
        "double",
        "softmax of columns",
        "sizes",
        "slice",
        "argmax",
        "Gram",
        "drop",
    ],
)
def test_chains_that_no_kernel_has(tail):
    """The product alone is served."""
    report = check_called_as_it_is(Behind(tail))
    (site,) = report.sites
    assert site.call.function == "linear"
    assert site.obstacle


def test_products_that_are_no_linear_layer():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(K, N), nn.Linear(K, N)

        def forward(self, x):
            return torch.softmax(self.q(x) @ self.k(x).transpose(-2, -1), dim=-1)

    report = check_called_as_it_is(Attention())
    assert [site.call.function for site in report.sites] == ["linear", "linear"]


def test_model_without_linear_layers():
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU())
    report = cutlass_fused.fuse(model)
    assert (report.sites, report.left) == ([], [])
    assert "forward" not in model.__dict__
