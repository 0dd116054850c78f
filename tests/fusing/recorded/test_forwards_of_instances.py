"""The forward of a fused model as an attribute: it is set, copied, taken back and asked for its
name. And what fuse leaves outside of the model."""

import copy
import inspect
import pickle
import random

import numpy as np
import pytest
import torch
from linear_tails import K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.last = nn.Linear(K, N), nn.Linear(N, 2)

    def forward(self, x, scale=1.0):
        """Says what it does."""
        return self.last(F.relu(self.fc(x))) * scale


def of_the_user(x):
    return x * 3.0


def _make_pair():
    plain = Model()
    model = copy.deepcopy(plain)
    cutlass_fused.fuse(model)
    return model, plain


COPY = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "deepcopy of a copy": lambda m: copy.deepcopy(copy.copy(m)),
    "copy of a deepcopy": lambda m: copy.copy(copy.deepcopy(m)),
    "in a list": lambda m: copy.deepcopy([m, m])[1],
    "within": lambda m: copy.deepcopy(nn.Sequential(m))[0],
}


@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("name", COPY)
def test_copies_keep_a_forward_of_the_user(name, is_called):
    model, plain = _make_pair()
    x = torch.randn(4, K)
    if is_called:
        model(x)
    for each in (model, plain):
        each.forward = of_the_user
    found, expected = COPY[name](model), COPY[name](plain)
    assert found.forward is expected.forward is of_the_user
    assert torch.equal(found(x), expected(x)) and torch.equal(model(x), plain(x))
    for each in (found, model):
        cutlass_fused.unfuse(each)
        assert list(vars(each)) == list(vars(plain))
        assert each.forward is of_the_user
        assert list(vars(each.fc)) == list(vars(plain.fc))


@pytest.mark.parametrize("name", COPY)
def test_copies_are_as_plain_ones(name):
    """Those of a fused model compute with what is theirs."""
    model, plain = _make_pair()
    x = torch.randn(4, K)
    for times in range(3):
        found, expected = COPY[name](model), COPY[name](plain)
        torch.testing.assert_close(found(x), expected(x))
        for each in (found, expected):
            each.last = nn.Linear(N, 3)
            nn.init.constant_(each.last.weight, 0.5 + times)
            nn.init.zeros_(each.last.bias)
        torch.testing.assert_close(found(x), expected(x))
        torch.testing.assert_close(model(x), plain(x))
        cutlass_fused.unfuse(found)
        assert set(vars(found)) == set(vars(expected))


def test_forward_of_the_user_taken_away():
    model, plain = _make_pair()
    x = torch.randn(4, K)
    for each in (model, plain):
        each.forward = of_the_user
        each(x)
        del each.forward
    torch.testing.assert_close(model(x), plain(x))
    found = copy.deepcopy(model)
    torch.testing.assert_close(found(x), plain(x))
    for each in (found, cutlass_fused.unfuse(model)):
        cutlass_fused.unfuse(each)
        assert list(vars(each)) == list(vars(plain))
    cutlass_fused.fuse(model)
    torch.testing.assert_close(model(x), plain(x))


def test_forward_of_the_user_and_fuse_again():
    model, plain = _make_pair()
    x = torch.randn(4, K)
    for each in (model, plain):
        each.forward = of_the_user
    cutlass_fused.fuse(model)
    assert model.forward is of_the_user
    assert torch.equal(model(x), plain(x))
    cutlass_fused.unfuse(model)
    assert list(vars(model)) == list(vars(plain))


@pytest.mark.parametrize("path", ["fc", "last"])
def test_forward_of_a_child(path):
    model, plain = _make_pair()
    x = torch.randn(4, K)
    for each in (model, plain):
        each.get_submodule(path).forward = lambda x: x[:, :1] * 2.0
        if path == "fc":
            each.last = nn.Identity()
    for _ in range(2):
        assert torch.equal(model(x), plain(x))
    assert torch.equal(copy.deepcopy(model)(x), plain(x))
    cutlass_fused.unfuse(model)
    assert torch.equal(model(x), plain(x))
    for each, other in zip(model.modules(), plain.modules(), strict=True):
        assert list(vars(each)) == list(vars(other))


NAMES = ["__name__", "__func__", "__code__"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_forward(name):
    model, plain = _make_pair()
    for each in (model, copy.deepcopy(model), copy.copy(model)):
        assert getattr(each.forward, name) == getattr(plain.forward, name)
        assert hasattr(each.forward, "no_such_name") is False


def test_owner_of_forward():
    model, _ = _make_pair()
    for each in (model, copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert each.forward.__self__ is each
        assert each.forward.__func__ is Model.forward
        assert callable(each.forward)


def test_forward_is_inspected():
    model, plain = _make_pair()
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)
    assert inspect.getsource(model.forward) == inspect.getsource(plain.forward)
    x = torch.randn(4, K)
    torch.testing.assert_close(model.forward.__func__(model, x, 2.0), plain.forward(x, 2.0))


class BuildsLayers(Model):
    """Its copies are made as it is: by drawing numbers, which are then replaced."""

    def __deepcopy__(self, memo):
        made = type(self)()
        np.random.rand()
        random.random()
        made.load_state_dict(self.state_dict())
        return made


def _get_states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("kind", [Model, BuildsLayers])
@pytest.mark.parametrize("graphs", [False, True])
def test_verify_draws_nothing(kind, graphs):
    model, x = kind(), torch.randn(4, K)
    before = _get_states()
    cutlass_fused.fuse(model, verify=x, graphs=graphs)
    after = _get_states()
    assert before[0] == after[0]
    if kind is Model:
        assert before == after
