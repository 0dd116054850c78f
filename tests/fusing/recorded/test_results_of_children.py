"""What children of a module give beside tensors: a forward that asks for it decides as before."""

import types

import pytest
import torch
from linear_tails import K
from same_effects import check_same, hold
from torch import nn
from torch.nn import functional as F


def _match_pair(m, x):
    match m.child(x):
        case (y, None):
            return F.relu(m.fc(y))
        case (y, aux):
            return F.relu(m.fc(y)) * aux.mean()
        case {"y": y, "aux": None}:
            return F.tanh(m.fc(y))
        case {"y": y, "aux": aux}:
            return F.tanh(m.fc(y)) * aux.mean()
        case types.SimpleNamespace(y=y, aux=None):
            return F.silu(m.fc(y))
        case types.SimpleNamespace(y=y, aux=aux):
            return F.silu(m.fc(y)) * aux.mean()
        case _:
            return F.gelu(m.other(x))


class Child(nn.Module):
    """What it gives is made by `give`, of a tensor and of None or another tensor."""

    def __init__(self, give, has_aux) -> None:
        super().__init__()
        self.give, self.has_aux = give, has_aux

    def forward(self, x):
        return self.give(torch.sin(x), torch.cos(x) if self.has_aux else None)


def _unpack(m, x):
    y, aux = m.child(x)
    y = F.relu(m.fc(y))
    return y if aux is None else (y, aux)


GIVES = {
    "unpacked": (lambda y, aux: (y, aux), _unpack),
    "indexed": (
        lambda y, aux: [y, aux],
        lambda m, x: (
            F.relu(m.fc(x)) * (2.0 if m.child(x)[1] is not None else 3.0),
            m.child(x)[0],
        ),
    ),
    "None alone": (
        lambda y, aux: aux,
        lambda m, x: F.relu(m.fc(x)) * (2.0 if m.child(x) is None else 3.0),
    ),
    "a dict": (
        lambda y, aux: {"y": y, "aux": aux},
        lambda m, x: F.relu(m.fc(x)) if m.child(x)["aux"] is None else F.tanh(m.fc(x)),
    ),
    "get of a dict": (
        lambda y, aux: {"y": y} if aux is None else {"y": y, "aux": aux},
        lambda m, x: F.relu(m.fc(x)) if m.child(x).get("aux") is None else F.tanh(m.fc(x)),
    ),
    "in a dict": (
        lambda y, aux: {"y": y} if aux is None else {"y": y, "aux": aux},
        lambda m, x: F.relu(m.fc(x)) if "aux" in m.child(x) else F.tanh(m.fc(x)),
    ),
    "an object": (
        lambda y, aux: types.SimpleNamespace(y=y, aux=aux),
        lambda m, x: F.relu(m.fc(x)) if m.child(x).aux is None else F.tanh(m.fc(x)),
    ),
    "truth": (lambda y, aux: (y, aux), lambda m, x: F.relu(m.fc(x)) if m.child(x)[1] else x),
    "matched, a tuple": (lambda y, aux: (y, aux), _match_pair),
    "matched, a dict": (lambda y, aux: {"y": y, "aux": aux}, _match_pair),
    "matched, an object": (lambda y, aux: types.SimpleNamespace(y=y, aux=aux), _match_pair),
}


@pytest.mark.parametrize("has_aux", [False, True])
@pytest.mark.parametrize("name", GIVES)
def test_results_of_children(name, has_aux):
    give, forward = GIVES[name]
    x = torch.randn(4, K)
    check_same(lambda: hold(forward, child=lambda: Child(give, has_aux)), (x,))


@pytest.mark.parametrize("need_weights", [False, True])
def test_attention(need_weights):
    def forward(self, x):
        y, weights = self.attention(x, x, x, need_weights=need_weights)
        y = F.relu(self.fc(y))
        return y if weights is None else (y, weights)

    def attend():
        return nn.MultiheadAttention(K, 2, batch_first=True)

    check_same(lambda: hold(forward, attention=attend), (torch.randn(2, 3, K),))
