"""Copies of fused modules by copy.copy, which share parameters, and of those that say themselves
how they are copied. test_same_model.py has those that share nothing."""

import copy
import pickle

import pytest
import torch
from linear_tails import K, N, Residual
from plain import PlainLinearScaleLeakyReLU
from torch import nn

import cutlass_fused
from cutlass_fused.fusing.forward import FusedForward


def make():
    model = PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1)
    plain = copy.copy(model)
    cutlass_fused.fuse(model)
    model(torch.randn(6, K))
    return model, plain


@pytest.mark.parametrize("times", [1, 2])
def test_computes_with_its_own_attributes(times):
    model, plain = make()
    other = model
    for _ in range(times):
        other = copy.copy(other)
    assert other.gemm is model.gemm  # as PyTorch's copies share their layers
    changed, x = copy.copy(plain), torch.randn(6, K)
    other.multiplier = changed.multiplier = 5.0
    torch.testing.assert_close(other(x), changed(x))
    torch.testing.assert_close(model(x), plain(x))
    forward = other.__dict__["forward"]
    assert isinstance(forward, FusedForward) and forward.module is other
    assert forward.plans[0].sites[0].last.why is None


def test_has_a_mode_of_its_own():
    model = nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N))
    cutlass_fused.fuse(model)
    other = copy.copy(model)
    other.training = False
    assert model.training and model(torch.randn(6, K)).shape == (6, N)
    other.append(nn.Tanh())  # into the layers of both
    x = torch.randn(6, K)
    assert other(x).abs().max() <= 1.0 and model(x).abs().max() <= 1.0


def test_unfused_each_for_itself():
    model, _ = make()
    before = {name for name in model.__dict__ if name not in ("forward", "__reduce_ex__")}
    other = copy.copy(model)
    cutlass_fused.unfuse(other)
    assert set(other.__dict__) == before and "forward" in model.__dict__
    cutlass_fused.unfuse(model)
    assert set(model.__dict__) == before
    assert "forward" not in copy.copy(model).__dict__


class WithState(Residual):
    """Says itself what its state is."""

    def __getstate__(self):
        return {**self.__dict__, "copies": getattr(self, "copies", 0) + 1}


class Reduced(Residual):
    """Says itself how it is made."""

    def __reduce__(self):
        return remake, (self.state_dict(),)


def remake(state):
    module = Reduced()
    module.load_state_dict(state)
    return module


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda m, protocol=protocol: pickle.loads(pickle.dumps(m, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", [WithState, Reduced])
def test_modules_that_say_how(kind, how):
    model, x = kind(), torch.randn(6, K)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    found = WAYS[how](model)
    torch.testing.assert_close(found(x), plain(x))
    forward = found.__dict__.get("forward")
    if kind is WithState:
        assert found.copies == 1 and forward.module is found
    else:
        assert forward is None
