"""Results that are dataclasses, or other objects of classes of the user's."""

import collections
import dataclasses
import typing

import pytest
import torch
from linear_tails import K
from same_effects import check_fused, check_same, hold
from torch import Tensor
from torch.nn import functional as F


@dataclasses.dataclass
class Plain:
    y: Tensor
    word: str = "a"


@dataclasses.dataclass(frozen=True)
class Frozen:
    y: Tensor
    parts: tuple = ()


@dataclasses.dataclass
class Nested:
    y: Tensor
    inner: Plain


@dataclasses.dataclass
class Scales:
    y: Tensor
    scale: float = 2.0

    def __post_init__(self):
        self.y = self.y * self.scale


@dataclasses.dataclass
class Derived:
    y: Tensor
    total: Tensor = dataclasses.field(init=False)

    def __post_init__(self):
        self.total = self.y.sum()


@dataclasses.dataclass
class NotGiven:
    y: Tensor
    word: str = dataclasses.field(init=False, default="none")


@dataclasses.dataclass
class Factory:
    y: Tensor
    seen: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class OfInitVar:
    y: Tensor
    scale: dataclasses.InitVar[float] = 3.0

    def __post_init__(self, scale):
        self.y = self.y * scale


@dataclasses.dataclass(init=False)
class OwnInit:
    y: Tensor
    scale: float

    def __init__(self, y):
        self.y, self.scale = y * 3.0, 3.0


@dataclasses.dataclass
class OwnNew:
    y: Tensor

    def __new__(cls, *args):
        made = super().__new__(cls)
        made.more = 5
        return made


@dataclasses.dataclass(kw_only=True)
class ByName:
    y: Tensor
    word: str = "b"


class Child(Plain):
    def __init__(self, y):
        super().__init__(y * 2.0, "child")


@dataclasses.dataclass
class Writes:
    y: Tensor

    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2.0)


class Doubles(collections.namedtuple("Doubles", "y, word")):
    def __new__(cls, y, word):
        return super().__new__(cls, y * 2.0, word)


class Named(typing.NamedTuple):
    y: Tensor
    word: str = "n"


def _with_more(y):
    made = Plain(y)
    made.more = y * 2.0
    return made


def _changed(y):
    made = Plain(y)
    made.y, made.word = y * 2.0, "changed"
    return made


def _read(y):
    return Scales(Plain(y).y, 5.0).y + Derived(y).total


MAKE = {
    "plain": Plain,
    "plain, all given": lambda y: Plain(y, word="z"),
    "in a tuple": lambda y: (Plain(y), y),
    "in a dict": lambda y: {"a": Plain(y), "b": [Plain(y * 2.0)]},
    "frozen": lambda y: Frozen(y, (y * 2.0, 3)),
    "nested": lambda y: Nested(y, Plain(y * 2.0)),
    "kw_only": lambda y: ByName(y=y),
    "a named tuple": Named,
    "__post_init__": Scales,
    "__post_init__, nested": lambda y: Nested(y, Scales(y)),
    "init=False, __post_init__": Derived,
    "init=False, a default": NotGiven,
    "default_factory": Factory,
    "InitVar": OfInitVar,
    "an __init__ of its own": OwnInit,
    "an __init__ of a child": Child,
    "a __new__ of its own": OwnNew,
    "a __setattr__ of its own": Writes,
    "a named tuple that doubles": lambda y: Doubles(y, "d"),
    "one more attribute": _with_more,
    "another attribute": _changed,
    "read within": _read,
    "replace": lambda y: dataclasses.replace(Plain(y), word="new"),
    "asdict": lambda y: dataclasses.asdict(Frozen(y.sum(), ())),
}


@pytest.mark.parametrize("name", MAKE)
def test_results(name):
    make = MAKE[name]

    def forward(self, x):
        return make(F.relu(self.fc(x)))

    report = check_same(lambda: hold(forward), (torch.randn(4, K),))
    if name.startswith("plain"):
        check_fused(report)
