"""Objects outside of a model, which its forward changes or calls: such a forward is left alone."""

import copy
import functools

import pytest
import torch
from linear_tails import K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing.recorded.constants import is_constant


class State:
    """One for all."""

    def __init__(self):
        self.count = 0.0

    def __deepcopy__(self, _):
        return self

    def add(self, y):
        self.count += 1.0
        return y * self.count


STATE = State()


class ChangesObject(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(K, N)

    def forward(self, x):
        STATE.count += 1.0
        return F.relu(self.fc(x)) * STATE.count


class CallsMethod(nn.Module):
    def __init__(self, method):
        super().__init__()
        self.fc, self.method = nn.Linear(K, N), method

    def forward(self, x):
        return self.method(F.relu(self.fc(x)))


MODELS = {
    "reads STATE, a State": ChangesObject,
    "reads method of a module, a method": lambda: CallsMethod(STATE.add),
    "reads method of a module, a partial": lambda: CallsMethod(functools.partial(State.add, STATE)),
}


@pytest.mark.parametrize("why", MODELS)
def test_objects_that_change(why):
    model, x = MODELS[why](), torch.randn(6, K)
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model)
    assert any(why in left.why for left in report.left), report
    assert "forward" not in model.__dict__ and [site.where for site in report.sites] == ["fc"]
    found = []
    for each in (model, plain):
        STATE.count = 0.0
        found.append([each(x) for _ in range(3)])
    torch.testing.assert_close(*found)


def test_what_is_constant():
    constant = (1.0, "a", None, torch.float16, F.relu, torch.relu, nn.Linear, (1, ("b", len)))
    constant += (functools.partial(F.leaky_relu, negative_slope=0.1), "a".join, ..., slice(1, 2))
    assert all(map(is_constant, constant))
    changing = ([], {}, STATE, STATE.add, [].append, (1, []), functools.partial(len, []), iter(""))
    assert not any(map(is_constant, changing))
