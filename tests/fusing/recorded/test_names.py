"""Arguments of a forward by names that the text of a fused forward, or Python, has for others."""

import pytest
import torch
from linear_tails import K, N
from same_effects import Holder, check_fused, check_same
from torch import nn

_TEXT = """
def forward({self}, {0}, {1}, {2}=None):
    z = {self}.net({0}) * {self}.scales[0] + {1}
    if {2} is None:
        z = z * 1.5
    z = z[:, 1:5]
    y = {self}.other({0}).sigmoid().mean(1, keepdim=True)
    return [z * y, {self}.last(z).relu() * {self}.factor, {1}]
"""

NAMES = [
    *("h0", "h1", "c0", "c1", "c2", "k0", "k1", "k2", "k7", "v0", "v1", "v2", "e0", "x", "acc"),
    *("slice", "isinstance", "len", "getattr", "type", "list", "dict", "Tensor"),
    *("self", "cls", "module", "forward", "plain", "again", "torch", "input", "weight", "bias"),
    *("epilogue", "compose", "__name__", "__builtins__", "_", "__class__", "args", "kwargs"),
]
TRIPLES = [
    *(("x", "h0", "c0"), ("h0", "h1", "h2"), ("c0", "c1", "c2"), ("k0", "k1", "k2")),
    *(("v0", "v1", "v2"), ("v2", "v1", "v0"), ("v0", "v0_", "v0__"), ("c0_", "c0", "k0_")),
    *(("slice", "isinstance", "len"), ("getattr", "len", "isinstance"), ("self", "forward", "x")),
]


def _make(names, this="self"):
    """A model whose forward has arguments of these names."""
    scope = {}
    exec(_TEXT.format(*names, self=this), scope)
    kind = type("Model", (Holder,), {"forward": scope["forward"]})

    def make():
        return kind(
            factor=2.0,
            net=nn.Sequential(nn.Linear(K, N), nn.Tanh()),
            scales=nn.ParameterList([nn.Parameter(torch.rand(N))]),
            last=nn.Linear(4, 3),
        )

    return make


def _check(names, this="self"):
    x, added, third = torch.randn(5, K), torch.randn(5, N), torch.randn(5, N)
    calls = [
        (x, added),
        dict(zip(names, (x, added), strict=False)),
        (x, added, None),
        (x, added, third),
        dict(zip(names, (x, added, third), strict=True)),
        dict(reversed(list(zip(names, (x, added, third), strict=True)))),
    ]
    report = check_same(_make(names, this), *calls)
    check_fused(report)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_one_name(name, place):
    names = ["first", "second", "third"]
    names[place] = name
    _check(names, "this")


@pytest.mark.parametrize("names", TRIPLES, ids=" ".join)
def test_names_together(names):
    _check(names, "this" if "self" in names else "self")


@pytest.mark.parametrize("this", ["v0", "h0", "c0", "k0", "len", "this", "x"])
def test_another_name_of_self(this):
    _check(["first", "second", "third"], this)


class Cell(nn.Module):
    """As of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(K, N), nn.Linear(K, N)

    def forward(self, x, h0, c0):
        return torch.sigmoid(self.a(x) + self.b(h0)) * c0


class Crossed(Cell):
    def forward(self, v0, v1):
        return torch.tanh(self.b(torch.relu(self.a(v1)).mean(1, keepdim=True) + v0)) + v1.sum()


class OfLengths(Cell):
    def forward(self, x, len):
        return torch.relu(self.a(x)) * len


class OfNumbers(Cell):
    """Constants of the text, beside arguments that are called as they are."""

    def forward(self, c0, c1, k0=0.5, k1="sum"):
        y = torch.tanh(self.a(c0) * k0) + c1
        return y.sum() if k1 == "sum" else y * 3.0


CALLS = {
    Cell: [("x", (K,)), ("h0", (K,)), ("c0", (N,))],
    Crossed: [("v0", (K,)), ("v1", (K,))],
    OfLengths: [("x", (K,)), ("len", (N,))],
    OfNumbers: [("c0", (K,)), ("c1", (N,))],
}


@pytest.mark.parametrize("kind", CALLS)
def test_models(kind):
    given = {name: torch.randn(4, *shape) for name, shape in CALLS[kind]}
    calls = [tuple(given.values()), given]
    if kind is OfNumbers:
        calls += [given | {"k1": "none"}, given | {"k0": 2.0}, (*calls[0], 0.25)]
    report = check_same(kind, *calls)
    check_fused(report)
