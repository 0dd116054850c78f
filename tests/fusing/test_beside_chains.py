"""Forwards that are nearly, and not, what a function computes."""

import copy

import pytest
import torch
from linear_tails import K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused


class Near(nn.Module):
    def __init__(self, tail) -> None:
        super().__init__()
        self.fc, self.bn, self.tail = nn.Linear(K, N), nn.BatchNorm1d(N), tail
        self.matrix = nn.Parameter(torch.randn(K, N))
        self.scale = nn.Parameter(torch.randn(N))

    def forward(self, x):
        return self.tail(self, x)


TAILS = {
    "softmax of columns": lambda m, x: F.softmax(m.bn(m.fc(x)), dim=0),
    "softmax of scaled columns": lambda m, x: torch.softmax(m.bn(m.fc(x)) * m.scale, 0),
    "slope by default": lambda m, x: F.leaky_relu(m.fc(x) * 2.0),
    "beta and alpha": lambda m, x: torch.addmm(m.scale, x, m.matrix, beta=0.5, alpha=2.0).relu(),
    "beta": lambda m, x: m.scale.addmm(x, m.matrix, beta=0.5),
    "a dimension more": lambda m, x: m.fc(x).unsqueeze(1) * m.scale,
    "a dimension less": lambda m, x: m.fc(x).view(-1) * 2.0,
}


def _write_and_read(m, x):
    z = m.fc(x)
    y = z.relu_()
    return y * 2.0 + z


def _write_behind_a_read(m, x):
    z = m.fc(x)
    y = z * 2.0
    return z.sigmoid_() + y + z


TAILS |= {"written, then read": _write_and_read, "read, then written": _write_behind_a_read}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", TAILS)
def test_right(name, training):
    model = Near(TAILS[name]).train(training)
    plain = copy.deepcopy(model)
    assert cutlass_fused.fuse(model).sites or "beta" in name
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(6, K)
            found, expected = model(x), plain(x)
            assert found.shape == expected.shape
            torch.testing.assert_close(found, expected)


def test_a_parameter_that_is_gone():
    """A branch asks for it."""

    class Scaled(Near):
        def forward(self, x):
            z = self.fc(x)
            return z.relu() if self.scale is None else z * self.scale

    model = Scaled(None)
    plain = copy.deepcopy(model)
    cutlass_fused.fuse(model)
    x = torch.randn(6, K)
    for scale in (model.scale, None, nn.Parameter(torch.ones(N)), None):
        model.scale = plain.scale = scale
        torch.testing.assert_close(model(x), plain(x))
