"""Clones that a forward makes, and that nothing but a site reads, are not made in inference."""

import copy

import pytest
import torch
from recorded_ops import RecordOps
from torch import nn
from torch.nn import functional as F

import cutlass_fused

WIDTH = 16


def _residual(self, x):
    kept = x.clone()
    return F.gelu(self.fc(x)) + kept


def _detached(self, x):
    kept = x.clone().detach()
    return self.fc(x).mean(dim=1, keepdim=True) + kept


def _by_functions(self, x):
    kept = torch.detach(torch.clone(x))
    return F.gelu(self.fc(x)) * kept


def _of_the_product(self, x):
    return F.gelu(self.fc(x.clone()))


def _in_two_sites(self, x):
    kept = x.clone()
    return self.fc(F.gelu(self.fc(x)) + kept) - kept


def _behind_a_write(self, x):
    x = x + 1
    x.mul_(2)
    kept = x.clone()
    return F.gelu(self.fc(x)) + kept


IDLE = (_residual, _detached, _by_functions, _of_the_product, _in_two_sites, _behind_a_write)


def _is_written_to(self, x):
    kept = x.clone()
    x.mul_(2)
    return F.gelu(self.fc(x)) + kept


def _is_written_to_by_a_module(self, x):
    kept = x.clone()
    x = self.relu(x)
    return F.gelu(self.fc(x)) + kept


def _writes(self, x):
    kept = x.clone()
    kept.mul_(2)
    return F.gelu(self.fc(x)) + kept


def _is_returned(self, x):
    kept = x.clone()
    return F.gelu(self.fc(x)) + kept, kept


def _is_returned_detached(self, x):
    kept = x.clone()
    return F.gelu(self.fc(x)) + kept, kept.detach()


def _is_viewed(self, x):
    kept = x.clone()
    return F.gelu(self.fc(x)) + kept, kept.view(-1)


def _lies_anew(self, x):
    kept = x.t().clone(memory_format=torch.contiguous_format)
    return F.gelu(self.fc(x)) + kept.t()


MADE = (
    *(_is_written_to, _is_written_to_by_a_module, _writes, _is_returned, _is_returned_detached),
    *(_is_viewed, _lies_anew),
)


def make(forward):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.relu = nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)

    Model.forward = forward
    return Model()


def run(model, x):
    given = x.clone()
    with RecordOps() as record:
        results = model(given)
    results = results if isinstance(results, tuple) else (results,)
    return [*results, given], record.names.count("clone")


@pytest.mark.parametrize("forward", [*IDLE, *MADE])
def test_clones(forward):
    plain = make(forward)
    model = copy.deepcopy(plain)
    assert cutlass_fused.fuse(model).sites
    x = torch.randn(4, WIDTH)
    x = torch.randn(WIDTH, WIDTH) if forward is _lies_anew else x
    for _ in range(2):  # decided, and called again
        with torch.no_grad():
            found, count = run(model, x)
        expected, made = run(plain, x)
        torch.testing.assert_close(found, expected)
        assert made == 1 and count == (forward in MADE)
        if count == 0:
            assert found[0].data_ptr() != found[-1].data_ptr()


@pytest.mark.parametrize("forward", IDLE)
def test_clones_are_made_for_gradients(forward):
    """What a caller writes to x behind a call changes no gradient."""
    plain = make(forward)
    model = copy.deepcopy(plain)
    cutlass_fused.fuse(model)
    x = torch.randn(4, WIDTH)
    (found, _), count = run(model, x)
    (expected, _), _ = run(plain, x)
    assert count >= 1
    weight = torch.randn_like(expected)
    grads = [
        torch.autograd.grad((y * weight).sum(), list(each.parameters()))
        for y, each in ((found, model), (expected, plain))
    ]
    for pair in zip(*grads, strict=True):
        torch.testing.assert_close(*pair)
