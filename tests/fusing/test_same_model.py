"""A fused model is the same model: its parameters, its state, its copies, and what is changed in it
later."""

import collections
import copy
import cProfile
import dataclasses
import gc
import inspect
import io
import pickle
import weakref
from typing import NamedTuple

import pytest
import torch
from linear_tails import CASES, Behind, K, N, Residual
from plain import PlainLinearBatchNorm1dScaleSoftmax, PlainLinearScaleLeakyReLU
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing.forward import FusedForward


def draw():
    return torch.randn(6, K)


def check_like(model, plain, x=None):
    x = draw() if x is None else x
    torch.testing.assert_close(model(x), plain(x))


def list_tensors(model):
    found = [*model.named_parameters(remove_duplicate=False)]
    return found + [*model.named_buffers(remove_duplicate=False)]


@pytest.mark.parametrize("name", CASES)
def test_keeps_its_tensors(name):
    model = CASES[name].make()
    tensors, modules = list_tensors(model), [*model.named_modules()]
    state = copy.deepcopy(model.state_dict())
    cutlass_fused.fuse(model)
    model(draw())
    for before, behind in ((tensors, list_tensors(model)), (modules, [*model.named_modules()])):
        assert [n for n, _ in before] == [n for n, _ in behind]
        assert all(a is b for (_, a), (_, b) in zip(before, behind, strict=True))
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state, strict=True)
    CASES[name].make().load_state_dict(model.state_dict(), strict=True)


def test_optimizer_that_was_there_before():
    model = Residual()
    plain = copy.deepcopy(model)
    steps = [(m, torch.optim.AdamW(m.parameters(), lr=0.01)) for m in (model, plain)]
    cutlass_fused.fuse(model)
    for _ in range(5):
        x = draw()
        for each, optimizer in steps:
            optimizer.zero_grad()
            each(x).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_statistics_move_as_before():
    model = PlainLinearBatchNorm1dScaleSoftmax(K, N)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    for _ in range(3):
        check_like(model, plain)
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    check_like(model.eval(), plain.eval())
    check_like(model.train(), plain.train())


def test_tied_weights():
    model = nn.Sequential(nn.Linear(K, K), nn.Tanh(), nn.Linear(K, K), nn.Tanh())
    model[2].weight = model[0].weight
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    assert model[2].weight is model[0].weight
    for each in (model, plain):
        each(x).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad)
    # And untied again.
    for each in (model, plain):
        each[2].weight = nn.Parameter(each[0].weight.detach() * 2.0)
    check_like(model, plain)


def test_one_layer_twice():
    linear = nn.Linear(K, K)
    model = nn.Sequential(linear, nn.Tanh(), linear, nn.Tanh())
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model)
    assert [site.call.function for site in report.sites] == ["linear_epilogue, tanh"] * 2
    check_like(model, plain)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": lambda model: _save_and_load(model),
}


def _save_and_load(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("how", COPIES)
def test_copies(how):
    """A copy is fused too, and has tensors of its own."""
    model = Residual()
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    model(draw())
    found = COPIES[how](model)
    forward = found.__dict__["forward"]
    assert isinstance(forward, FusedForward) and forward.module is found
    check_like(found, plain)
    assert forward.plans[0].sites[0].last.why is None
    with torch.no_grad():
        found.fc1.weight.zero_()
    check_like(model, plain)
    assert not torch.equal(found(draw()), model(draw()))
    cutlass_fused.unfuse(found)
    assert "forward" not in found.__dict__ and "forward" in model.__dict__


def test_is_freed():
    model = Residual()
    cutlass_fused.fuse(model)
    model(draw())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


CHANGES = {
    "slope": lambda m: setattr(m.leaky_relu, "negative_slope", 0.7),
    "multiplier": lambda m: setattr(m, "multiplier", 3.0),
    "another layer": lambda m: setattr(m, "gemm", _make_layer()),
    "another activation": lambda m: setattr(m, "leaky_relu", nn.Tanh()),
    "class of the activation": lambda m: setattr(m.leaky_relu, "__class__", nn.Tanh),
    "weight": lambda m: setattr(m.gemm, "weight", nn.Parameter(torch.ones(N, K))),
    "no bias": lambda m: setattr(m.gemm, "bias", None),
    "a parameter": lambda m: setattr(m, "multiplier", nn.Parameter(torch.ones(N))),
    "dtype": lambda m: m.double().float(),
}


def _make_layer():
    torch.manual_seed(5)
    return nn.Linear(K, N)


@pytest.mark.parametrize("what", CHANGES)
def test_changed_behind_fuse(what):
    model = PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    check_like(model, plain)
    with torch.no_grad():
        for each in (model, plain):
            if what == "a parameter":
                del each.multiplier
            CHANGES[what](each)
    check_like(model, plain)
    check_like(model, plain)


def test_attribute_that_changes_in_every_call():
    model = PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    for step in range(20):
        model.multiplier = plain.multiplier = 1.0 + step / 7
        check_like(model, plain)
    assert len(model.__dict__["forward"].plans) <= 8


def test_appended_to():
    model = nn.Sequential(nn.Linear(K, N), nn.Tanh())
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    model(draw())
    for each in (model, plain):
        each.append(nn.Sigmoid())
    check_like(model, plain)


def test_mode_that_the_forward_reads():
    model = Behind(lambda m, z, x: F.relu(F.dropout(z, 0.5, m.training)))
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    for training in (True, False, True):
        torch.manual_seed(1)
        y = model.train(training)(x)
        torch.manual_seed(1)
        torch.testing.assert_close(y, plain.train(training)(x))


def test_default_arguments():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(K, N)

        def forward(self, x, mask=None, scale=2.0):
            y = torch.tanh(self.fc(x)) * scale
            return y if mask is None else y * mask

    model = Optional()
    plain, x, mask = copy.deepcopy(model), draw(), torch.rand(6, N)
    report = cutlass_fused.fuse(model)
    for args, kwargs in (
        ((x,), {}),
        ((x, mask), {}),
        ((x,), {"mask": mask}),
        ((x,), {"scale": 3.0}),
    ):
        torch.testing.assert_close(model(*args, **kwargs), plain(*args, **kwargs))
    torch.testing.assert_close(model(x=x), plain(x))
    assert report.sites[0].last.why is None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        model()
    with pytest.raises(TypeError, match="linear"):
        model(None)


def test_functional_call():
    model = Residual()
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    other = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    found = torch.func.functional_call(model, other, (x,))
    torch.testing.assert_close(found, torch.func.functional_call(plain, other, (x,)))


def test_transforms():
    model = Residual().double()
    plain, x = copy.deepcopy(model), torch.randn(6, K, dtype=torch.float64)
    cutlass_fused.fuse(model)
    for transform in (torch.func.jacrev, torch.func.jacfwd, torch.vmap):
        found = transform(model)(x.clone())
        torch.testing.assert_close(found, transform(plain)(x.clone()))
    with torch.autograd.forward_ad.dual_level():
        pair = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        for ours, theirs in zip(
            *(torch.autograd.forward_ad.unpack_dual(m(pair)) for m in (model, plain)), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


def test_checkpoint():
    model = Residual()
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    for each in (model, plain):
        torch.utils.checkpoint.checkpoint(each, x, use_reentrant=False).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_traces_and_exports():
    """What looks at a model sees the plain one."""
    model = Residual().eval()
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.trace(model, x)(x), plain(x))
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), plain(x))
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), plain(x))
    names = {str(n.target) for n in torch.fx.symbolic_trace(model).graph.nodes}
    assert "fc1" in names


def test_compile():
    model = Residual()
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), plain(x))


class Pair(NamedTuple):
    first: torch.Tensor
    second: dict


@dataclasses.dataclass
class Record:
    first: torch.Tensor


class Outputs(collections.OrderedDict):
    pass


RESULTS = {
    "named tuple": lambda m, z, x: Pair(F.gelu(z), {"x": [x, (x, None)], "n": 1}),
    "dataclass": lambda m, z, x: Record(F.gelu(z)),
    "dictionary of another kind": lambda m, z, x: Outputs(first=F.gelu(z)),
    "slices": lambda m, z, x: F.gelu(z)[:, 1::2, None],
    "unpacked": lambda m, z, x: F.gelu(z).chunk(3, dim=1)[1],
    "sizes": lambda m, z, x: F.gelu(z).view(x.shape[0], -1, 2),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_of_every_kind(what):
    model = Behind(RESULTS[what])
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.fuse(model)
    ours, theirs = model(x), plain(x)
    assert type(ours) is type(theirs)
    if what == "named tuple":
        assert ours.second["x"][0] is x and ours.second["x"][1] == (x, None)
        assert ours.second["n"] == 1
    if what in ("named tuple", "dataclass"):
        ours, theirs = ours.first, theirs.first
    torch.testing.assert_close(ours, theirs)


class WithConstant(nn.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(K, N)

    def activate(self, z):
        return F.gelu(z) * self.factor

    def forward(self, x):
        return self.activate(self.fc(x))


def test_class_that_changes(monkeypatch):
    model = WithConstant()
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    check_like(model, plain)
    monkeypatch.setattr(WithConstant, "factor", 3.0)
    check_like(model, plain)
    model.factor = plain.factor = 5.0
    check_like(model, plain)
    monkeypatch.setattr(WithConstant, "activate", lambda self, z: torch.tanh(z))
    check_like(model, plain)
    monkeypatch.setattr(WithConstant, "forward", lambda self, x: self.fc(x) + 1.0)
    check_like(model, plain)


def test_under_a_profiler():
    """Which watches on, and sees nothing of the code that fuse watches."""
    model = nn.ModuleList(
        [Residual(), Behind(lambda m, z, x: F.relu(z) if isinstance(z, str) else z)]
    )
    with cProfile.Profile() as profile:
        report = cutlass_fused.fuse(model)
        model[0](draw())
    assert [left.where for left in report.left] == ["1"]
    assert len(report.sites) == 3
    assert any("test_same_model" in str(each.code) for each in profile.getstats())


def test_signature():
    model = Residual()
    expected = inspect.signature(model.forward)
    cutlass_fused.fuse(model)
    assert inspect.signature(model.forward) == expected


def test_fused_twice():
    model = Residual()
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model, precision="tf32")
    report = cutlass_fused.fuse(model, precision="ieee")
    assert {site.precision for site in report.sites} == {"ieee"}
    check_like(model, plain)
    cutlass_fused.unfuse(cutlass_fused.unfuse(model))
    assert all("forward" not in module.__dict__ for module in model.modules())
