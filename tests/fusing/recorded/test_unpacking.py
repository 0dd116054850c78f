"""Unpacking of shapes and of tensors, also of a wrong length, which is a ValueError."""

import pytest
import torch
from linear_tails import K, N
from same_effects import check_same, hold


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
