"""Models with modules in another state than they are made in, before fuse and behind it."""

import copy
import types

import pytest
import torch
from linear_tails import K, N
from same_effects import check_equal, describe, hold, observe
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import cutlass_fused


def _is_nothing():
    return None


def check_pair(model, plain, *calls):
    """Both do the same in training and in eval."""
    for is_training in (True, False):
        for call in calls:
            found = []
            for each in (model, plain):
                each.train(is_training)
                found.append(observe(each, call) + describe(each, _is_nothing))
            check_equal(f"training {is_training}", *found)


def _make_pair(make):
    plain = make()
    return copy.deepcopy(plain), plain


# ---- norms whose weights are no Parameters ----

NORMS = {
    "LayerNorm": lambda: nn.LayerNorm(N),
    "RMSNorm": lambda: nn.RMSNorm(N),
    "GroupNorm": lambda: nn.GroupNorm(3, N),
    "BatchNorm1d": lambda: nn.BatchNorm1d(N),
}


def _norm(self, x):
    return torch.tanh(self.norm(self.fc(x)))


def _replace(module, name, how):
    value = torch.linspace(0.5, 2.0, module._parameters[name].numel())
    value = value.reshape(module._parameters[name].shape)
    delattr(module, name)
    if how == "buffer":
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


CHANGED = [(kind, name) for kind in NORMS for name in ("weight", "bias")]
CHANGED.remove(("RMSNorm", "bias"))


@pytest.mark.parametrize("how", ["buffer", "tensor"])
@pytest.mark.parametrize(("kind", "name"), CHANGED)
def test_weights_of_norms(kind, name, how):
    model, plain = _make_pair(lambda: hold(_norm, norm=NORMS[kind]))
    x = torch.randn(4, K)
    cutlass_fused.fuse(model)
    check_pair(model, plain, (x,))
    for each in (model, plain):  # behind fuse
        _replace(each.norm, name, how)
    check_pair(model, plain, (x,))
    check_pair(copy.deepcopy(model), copy.deepcopy(plain), (x,))
    before = cutlass_fused.unfuse(copy.deepcopy(model))
    cutlass_fused.fuse(before)
    check_pair(before, plain, (x,))
    check_pair(copy.deepcopy(before), copy.deepcopy(plain), (x,))


@pytest.mark.parametrize("how", ["buffer", "tensor"])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_weights_of_linear(name, how):
    model, plain = _make_pair(lambda: nn.Sequential(nn.Linear(K, N), nn.Tanh(), nn.Linear(N, 2)))
    cutlass_fused.fuse(model)
    for each in (model, plain):
        _replace(each[0], name, how)
    check_pair(model, plain, (torch.randn(4, K),))
    check_pair(copy.deepcopy(model), copy.deepcopy(plain), (torch.randn(4, K),))


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("name", ["fc", "norm"])
def test_weight_that_is_gone(kind, name):
    """The same exception, or the same result."""
    x = torch.randn(4, K)
    for attribute in ("weight", "bias"):
        if (name, kind, attribute) == ("norm", "GroupNorm", "weight"):
            continue  # PyTorch's own gradient raises "tensor does not have a device"
        model, plain = _make_pair(lambda: hold(_norm, norm=NORMS[kind]))
        cutlass_fused.fuse(model)
        check_pair(model, plain, (x,))
        for each in (model, plain):
            if hasattr(getattr(each, name), attribute):
                setattr(getattr(each, name), attribute, None)
        check_pair(model, plain, (x,))
        before = cutlass_fused.unfuse(copy.deepcopy(model))
        cutlass_fused.fuse(before)
        check_pair(before, plain, (x,))


# ---- nan_to_num ----

TO_NUMBERS = {
    "function": lambda self, x: torch.nan_to_num(self.fc(x) * float("inf")),
    "method": lambda self, x: (self.fc(x) * float("-inf")).nan_to_num(),
    "NaN": lambda self, x: torch.nan_to_num(self.fc(x) * float("nan"), 2.0) + 1.0,
    "a largest": lambda self, x: torch.nan_to_num(self.fc(x) * float("inf"), posinf=7.0) * 0.5,
    "in the middle": lambda self, x: torch.tanh(torch.nan_to_num(self.fc(x) / 0.0) * 1e-3),
    "float16's largest": lambda self, x: torch.nan_to_num(torch.tanh(self.fc(x) * 1e4) * 1e5),
}
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", [*DTYPES, "autocast"], ids=str)
@pytest.mark.parametrize("name", TO_NUMBERS)
def test_nan_to_num(name, dtype):
    model, plain = _make_pair(lambda: hold(TO_NUMBERS[name]))
    x = torch.randn(4, K)
    if isinstance(dtype, torch.dtype):
        model, plain, x = model.to(dtype), plain.to(dtype), x.to(dtype)
    cutlass_fused.fuse(model)
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
            torch.testing.assert_close(model(x), plain(x), equal_nan=True)


# ---- Sequentials that a forward goes through ----


def _through(self, x):
    return self.out(self.net(x)) * 2.0


def _make_net():
    return nn.Sequential(nn.Linear(K, N), nn.Tanh(), nn.Linear(N, N))


def _count(model, register):
    model.hits = []
    getattr(model.net, register)(lambda *_: model.hits.append(1))


class Doubled(nn.Sequential):
    def forward(self, x):
        return super().forward(x) * 2.0


class Called(nn.Sequential):
    def __call__(self, x):
        return super().__call__(x) * 2.0


def _doubled_forward(self, x):
    return nn.Sequential.forward(self, x) * 2.0


CHANGES = {
    "a hook": lambda m: _count(m, "register_forward_hook"),
    "a pre-hook": lambda m: _count(m, "register_forward_pre_hook"),
    "a backward hook": lambda m: _count(m, "register_full_backward_hook"),
    "a backward pre-hook": lambda m: _count(m, "register_full_backward_pre_hook"),
    "a forward": lambda m: setattr(m.net, "forward", types.MethodType(_doubled_forward, m.net)),
    "a class": lambda m: setattr(m.net, "__class__", Doubled),
    "a class of the model": lambda m: setattr(m, "__class__", type("Same", (type(m),), {})),
    "a gradient doubled": lambda m: m.net.register_full_backward_pre_hook(
        lambda _, grads: (grads[0] * 2.0,)
    ),
    "one more layer": lambda m: m.net.append(nn.Sigmoid()),
    "one layer less": lambda m: m.net.pop(1),
    "another layer": lambda m: m.net.__setitem__(1, nn.ReLU()),
    "another Sequential": lambda m: setattr(m, "net", nn.Sequential(m.net[0], nn.ReLU())),
    "a forward of a layer": lambda m: setattr(m.net[0], "forward", lambda x: torch.ones(4, N)),
    "a forward of an activation": lambda m: setattr(m.net[1], "forward", torch.relu),
    "a __call__": lambda m: setattr(m.net, "__class__", Called),
}


@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_sequential(name, is_called):
    parts = {"net": _make_net, "out": lambda: nn.Linear(N, 2)}
    model, plain = _make_pair(lambda: hold(_through, **parts))
    cutlass_fused.fuse(model)
    x = torch.randn(4, K, requires_grad=True)
    if is_called:
        check_pair(model, plain, (x,))
    for each in (model, plain):
        torch.manual_seed(1)
        CHANGES[name](each)
    check_pair(model, plain, (x,), (x,))


# ---- the rest ----

NO_STATISTICS = {
    "batch norm": lambda self, x: torch.sigmoid(self.norm(self.fc(x))) * 2.0,
    "scale": lambda self, x: self.norm(self.fc(x) * 0.5),
    "before": lambda self, x: self.norm(torch.relu(self.fc(x))) + 1.0,
    "softmax": lambda self, x: torch.softmax(self.norm(self.fc(x)) * self.scale, dim=1),
}


@pytest.mark.parametrize("track", [False, True])
@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("name", NO_STATISTICS)
def test_meta(name, when, track):
    parts = {"norm": lambda: nn.BatchNorm1d(N, track_running_stats=track)}
    parts |= {"scale": lambda: nn.Parameter(torch.ones(1))}
    model, plain = _make_pair(lambda: hold(NO_STATISTICS[name], **parts))
    if when == "before":
        model.to("meta")
    cutlass_fused.fuse(model)
    x = torch.randn(4, K, device="meta")
    for each in (model.to("meta"), plain.to("meta")):
        for is_training in (True, False):
            y = each.train(is_training)(x)
            assert (y.shape, y.device.type) == ((4, N), "meta")


class DoublesLinear(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        y = function(*args, **(kwargs or {}))
        return y * 2.0 if function is F.linear else y


@pytest.mark.parametrize("is_called", [False, True])
def test_modes_of_functions(is_called):
    model, plain = _make_pair(lambda: nn.Sequential(_make_net(), nn.Linear(N, 2), nn.ReLU()))
    cutlass_fused.fuse(model)
    x = torch.randn(4, K)
    if is_called:
        check_pair(model, plain, (x,))
    for _ in range(2):
        with DoublesLinear():
            check_pair(model, plain, (x,))
        check_pair(model, plain, (x,))
    with torch.device("cpu"):
        check_pair(model, plain, (x,))
