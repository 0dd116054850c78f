"""What of single instructions a recording finds, and that it leaves Python as it was."""

import sys

import pytest
import torch
from linear_tails import K, N
from same_effects import check_same, hold
from torch import nn
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.fusing.recorded import instructions, recording
from cutlass_fused.fusing.recorded.instructions import Value, find_watched


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
