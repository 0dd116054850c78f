"""What of single instructions a recording finds, and that it leaves Python as it was."""

import collections
import dataclasses
import enum
import functools
import operator
import sys

import pytest
import torch
from linear_tails import K, N
from same_effects import check_fused, check_same, hold
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing.recorded import instructions, recording
from cutlass_fused.fusing.recorded.bytecode import Value, find_watched


def _judge(x, mask, owner, holder):
    if mask is None:
        x = x + 1
    if owner.part.bias is not None:
        x = x + 2
    if getattr(owner, "norm", None) is not None:
        x = x + 3
    if owner.layers[0] is None:
        x = x + 4
    same = x is mask
    flag = x.requires_grad is False
    holder.count += 1
    holder.count = torch.pi
    either = (x if same else mask) is None
    return x, flag, either, holder.make().size is None


def test_finds_what_is_compared_and_written():
    found = list(find_watched(_judge.__code__).values())
    assert [(each.value, each.other) for each in found if each.what == "is"] == [
        (Value("fast", "mask", ()), None),
        (Value("fast", "owner", ("part", "bias")), None),
        (Value("fast", "owner", ("norm",)), None),
        (Value("fast", "owner", ("layers", "[]")), None),
        (Value("fast", "x", ()), Value("fast", "mask", ())),
        (Value("fast", "x", ("requires_grad",)), False),
        (None, None),
        (None, None),
    ]
    writes = [each.value for each in found if each.what == "write"]
    assert writes == [Value("fast", "holder", ())] * 2
    reads = {(each.value, each.attribute) for each in found if each.what == "read"}
    assert (Value("global", "torch", ()), "pi") in reads


def _compare(self, x, mask=None):
    return F.relu(self.fc(x)) * (1.0 if mask is None else 2.0)


def test_without_instructions_a_comparison_is_left(monkeypatch):
    """In a Python that does not tell them."""
    model, x = hold(_compare, fc=lambda: nn.Linear(K, N)), torch.randn(3, K)
    report, expected = cutlass_fused.fuse(model), model(x)
    assert ["Linear", "relu", "mul"] in [site.names for site in report.sites]
    monkeypatch.setattr(recording, "sees_instructions", lambda: False)
    report = cutlass_fused.fuse(model)
    assert any("does not tell what _compare does" in each.why for each in report.left)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("is_traced", [False, True])
def test_python_is_as_it_was(is_traced):
    """Also where a debugger looks on, and behind an exception."""

    def look(frame, event, _):
        return None

    def fail(self, x):
        raise ValueError("not today")

    before = sys.gettrace(), sys.getprofile()
    if is_traced:
        sys.settrace(look)
    try:
        for forward in (_compare, fail):
            cutlass_fused.fuse(hold(forward, fc=lambda: nn.Linear(K, N)))
            assert sys.gettrace() is (look if is_traced else before[0])
            assert sys.getprofile() is before[1]
    finally:
        sys.settrace(before[0])
    assert instructions.sees_instructions()


# ---- of shapes and of tensors, also of a wrong length ----


def _unpack_shape(self, x):
    b, d = x.shape
    return torch.relu(self.fc(x))


def _unpack_size(self, x):
    b, t, d = x.size()
    return torch.relu(self.fc(x)).view(b, t, N)


def _unpack_nested(self, x):
    (b, d), width = x.shape, x.shape[-1]
    return torch.relu(self.fc(x)) * d / width + b


def _unpack_rest(self, x):
    b, *_, d = x.shape
    return torch.relu(self.fc(x)) * d


def _unpack_split(self, x):
    a, b = self.fc(x).split(2, -1)
    return torch.relu(a) * b


def _unpack_chunk(self, x):
    a, b, c = self.fc(x).chunk(3, -1)
    return torch.relu(a) * b - c


def _unpack_unbind(self, x):
    a, b = torch.unbind(x)
    return torch.relu(self.fc(a)) * b.mean()


def _unpack_tensor(self, x):
    a, b = x
    return torch.relu(self.fc(a)) * b.mean()


def _unpack_unused(self, x):
    _, _ = self.fc(x).split(2, -1)
    return torch.relu(self.fc(x))


UNPACK = {name: each for name, each in list(globals().items()) if name.startswith("_unpack_")}


@pytest.mark.parametrize("name", UNPACK)
def test_unpacking(name):
    shapes = [(4, K), (2, 3, K), (4, K), (1, K), (2, K), (K,), (2, 3, 4, K)]
    check_same(lambda: hold(UNPACK[name]), *[(torch.randn(shape),) for shape in shapes])


# ---- what is followed, and what goes past one check or another ----


class Optional(nn.Module):
    """Gives None, or a tensor."""

    def forward(self, x):
        return None


class Filler(nn.Module):
    """Fills what it is given."""

    def forward(self, x, given):
        if isinstance(given, dict):
            given["sum"] = x.sum()
        else:
            given.append(x.sum())
        return x


class Yields(nn.Module):
    def forward(self, x):
        return (each for each in (x, x + 1.0))


class Forgets(nn.Linear):
    def forward(self, x):
        return None


class Mode(enum.Enum):
    A, B = range(2)


@dataclasses.dataclass(frozen=True)
class Frozen:
    y: torch.Tensor


def _exists(value):
    return value is not None


def _act(y, seen=[]):  # noqa: B006
    seen.append(1)
    return y * len(seen)


def _sum_of_embedding(self, x):
    e = self.part(x[:, 0].abs().long() % 3)
    return F.relu(self.fc(x)) * (e if _exists(e) else 1.0)


def _chunks(self, x):
    scale, shift = self.fc(x).chunk(2, -1)
    z = F.relu(self.other(x))[:, : scale.shape[1]]
    return (z * scale if _exists(scale) else z) + (shift if _exists(shift) else 0.0)


def _accumulate(self, x):
    total = None
    for layer in self.part:
        total = layer(x) if total is None else total + layer(x)
    return F.relu(total)


def _mode(self, x):
    return F.relu(self.fc(x)) if self.part is Mode.A else F.tanh(self.fc(x))


def _walrus(self, x):
    if (part := self.part) is not None:
        x = part(x)
    return F.relu(self.fc(x))


def _frozen(self, x):
    return Frozen(F.relu(self.fc(x)))


def _named(self, x):
    return F.relu(self.seed(x)) * self.dir


def _behind_a_hook(self, x):
    return F.relu(self.fc(self.part(x))) * self.factor


def _make_hooked():
    part = nn.Tanh()
    part.register_full_backward_hook(lambda *_: None)
    return part


class Crowded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.betas = [0.1] * 2000

    def forward(self, x):
        return x + self.betas[0]


FOLLOWED = {
    "an embedding": (_sum_of_embedding, {"part": lambda: nn.Embedding(3, N)}),
    "chunks": (_chunks, {}),
    "a loop": (_accumulate, {"part": lambda: nn.ModuleList([nn.Linear(K, N), nn.Linear(K, N)])}),
    "an enumeration": (_mode, {"part": lambda: Mode.A}),
    "a walrus": (_walrus, {"part": nn.Tanh}),
    "a frozen dataclass": (_frozen, {}),
    "names of functions": (_named, {"seed": lambda: nn.Linear(K, N), "dir": lambda: 2.0}),
    "a backward hook": (_behind_a_hook, {"part": _make_hooked, "factor": lambda: 3.0}),
    "a child of many numbers": (_behind_a_hook, {"part": Crowded, "factor": lambda: 3.0}),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name):
    forward, parts = FOLLOWED[name]
    check_fused(check_same(lambda: hold(forward, **parts), (torch.randn(4, K),)))


def _fill(make):
    def forward(self, x):
        given = make()
        y = F.relu(self.fc(self.part(x, given)))
        return y, sum(given.values() if isinstance(given, dict) else given)

    return forward


def _generated(self, x):
    a, b = self.part(x)
    return F.relu(self.fc(a)) + self.other(b)


def _compare_by(compare):
    def forward(self, x):
        return F.relu(self.fc(x)) * (2.0 if compare(self, self.part(x)) else 3.0)

    return forward


Pair = collections.namedtuple("Pair", ["x", "y"])
_is_one = isinstance
PAST = {
    "a list that a child fills": (_fill(list), {"part": Filler}),
    "a dict that a child fills": (_fill(dict), {"part": Filler}),
    "a generator": (_generated, {"part": Yields}),
    "a Linear that gives None": (
        _compare_by(lambda m, y: y is None),
        {"part": lambda: Forgets(K, N)},
    ),
    "a field": (_compare_by(lambda m, y: Pair(1.0, y).y is None), {"part": Optional}),
    "an operator": (_compare_by(lambda m, y: operator.is_(y, None)), {"part": Optional}),
    "another name": (_compare_by(lambda m, y: _is_one(y, torch.Tensor)), {"part": Optional}),
    "an attribute": (
        _compare_by(lambda m, y: m.check(y, torch.Tensor)),
        {"part": Optional, "check": lambda: isinstance},
    ),
}


@pytest.mark.parametrize("name", PAST)
def test_goes_past_no_check(name):
    forward, parts = PAST[name]
    check_same(lambda: hold(forward, **parts), (torch.randn(4, K),))


def test_a_list_that_is_a_default():
    def forward(self, x):
        return self.act(F.relu(self.fc(x)))

    before = len(_act.__defaults__[0])
    model = hold(forward, act=lambda: _act)
    cutlass_fused.fuse(model)
    assert len(_act.__defaults__[0]) == before
    for _ in range(3):
        model(torch.randn(2, K))
    assert len(_act.__defaults__[0]) == before + 3


def test_a_cache_keeps_no_stand_in():
    """And the model is as it was."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.gate = nn.Linear(K, N), nn.Parameter(torch.ones(N))

        @functools.lru_cache  # noqa: B019
        def double(self):
            return self.gate * 2.0

        def forward(self, x):
            return F.relu(self.fc(x)) * self.double()

    model, x = Cached(), torch.randn(3, K)
    expected = F.relu(model.fc(x)) * 2.0
    cutlass_fused.fuse(model)
    torch.testing.assert_close(model(x), expected)
    assert type(model.double()) is torch.Tensor


def test_classes_that_get_an_attribute_later():
    class Base(nn.Module):
        factor = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(K, N)

        def forward(self, x):
            return F.relu(self.fc(x)) * self.factor

    class Model(Base):
        pass

    model, x = Model(), torch.randn(3, K)
    cutlass_fused.fuse(model)
    once = model(x)
    Model.factor = 3.0
    torch.testing.assert_close(model(x), once * 3.0)
