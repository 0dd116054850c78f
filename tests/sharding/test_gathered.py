"""Which parameters FSDP2 has gathered, as each version of torch keeps them."""

import types
import weakref

import pytest
import torch
from torch.distributed import _composable_state

from cutlass_fused.sharding import is_gathered


def make_group(*parameters):
    params = [types.SimpleNamespace(_unsharded_param=parameter) for parameter in parameters]
    # One that is not gathered yet has no such attribute.
    return types.SimpleNamespace(fsdp_params=[types.SimpleNamespace(), *params])


class OneGroup:
    """To torch 2.11."""

    def __init__(self, groups):
        (self._fsdp_param_group,) = groups or [None]


class SeveralGroups:
    """Where a module's parameters have several meshes, torch refuses to name the group."""

    def __init__(self, groups):
        self._fsdp_param_groups = groups

    @property
    def _fsdp_param_group(self):
        assert len(self._fsdp_param_groups) < 2, "Expected at most 1 param group"
        return self._fsdp_param_groups[0] if self._fsdp_param_groups else None


@pytest.fixture
def states(monkeypatch):
    """Those of modules, by weak references as PyTorch has them."""
    found = weakref.WeakKeyDictionary()
    monkeypatch.setattr(_composable_state, "_module_state_mapping", found)
    return found


@pytest.mark.parametrize(
    ("kind", "count"), [(OneGroup, 0), (OneGroup, 1), *((SeveralGroups, n) for n in range(3))]
)
def test_parameters_of_all_groups(states, kind, count):
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(count)]
    state, module = kind([make_group(weight) for weight in weights]), torch.nn.Module()
    states[module] = weakref.ref(state)
    assert all(map(is_gathered, weights))
    assert not is_gathered(torch.nn.Parameter(torch.ones(2)))
    del state  # its module is about to go, too
    assert not any(map(is_gathered, weights))
