"""Calls of ops by the shortest way: what they give, and when a site takes that way."""

import copy

import pytest
import torch
from linear_tails import K, N
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch.autograd import forward_ad

import cutlass_fused

TARGETS = {
    "12": lambda: PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1),
    "33": lambda: PlainLinearScaleBatchNorm1d(K, N, (N,)),
    "84": lambda: PlainLinearBatchNorm1dScaleSoftmax(K, N),
}

every_mode = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def draw(rows=6):
    return torch.randn(rows, K)


def make_site(target, training):
    model = TARGETS[target]().train(training)
    (site,) = cutlass_fused.fuse(model, precision="ieee").sites
    return model, site


def call(site, x, run, **options):
    weight, bias, split, operands = site.take(x, ())
    return run(x, weight, bias, split, operands, **options)


@every_mode
@pytest.mark.parametrize("target", TARGETS)
def test_gives_what_the_function_gives(target, training):
    model, site = make_site(target, training)
    twin, other = make_site(target, training)
    twin.load_state_dict(copy.deepcopy(model.state_dict()))
    x = draw()
    with torch.no_grad():
        for _ in range(2):
            y = call(site, x, site.call.direct)
            assert torch.equal(y, call(other, x, other.call.run, out_dtype=None))
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_batch_of_one_is_refused():
    model, site = make_site("33", True)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad(), pytest.raises(ValueError, match="more than 1 value per channel"):
        call(site, draw(1), site.call.direct)
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )


@pytest.fixture
def watched():
    """A site of target 33 that counts its direct calls, as if x were on a GPU."""
    model, site = make_site("33", False)
    direct, calls = site._direct, []

    def watch(*args):
        calls.append(args)
        return direct(*args)

    site._direct = watch
    asked = site._may_be_direct

    def pretend(x, weight, operands):
        class OnGpu:
            is_cuda, dtype, device = True, x.dtype, x.device
            is_floating_point = x.is_floating_point

        return asked(OnGpu, weight, operands)

    site._may_be_direct = pretend
    return model, site, calls


def test_taken_behind_a_decision(watched):
    model, _, calls = watched
    x = draw()
    with torch.no_grad():
        first, second = model(x), model(x)
    assert len(calls) == 1  # the first call was the function's
    assert torch.equal(first, second)


def test_not_taken_with_gradients(watched):
    model, _, calls = watched
    x = draw()
    for _ in range(3):
        assert model(x).requires_grad
    with torch.no_grad():
        model(x), model(x)
    assert len(calls) == 1
    assert model(x).requires_grad
    assert len(calls) == 1


def test_not_taken_under_autocast(watched):
    model, _, calls = watched
    x = draw()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(x), model(x)
    assert not calls


def test_not_taken_in_forward_mode(watched):
    model, _, calls = watched
    x = draw()
    with torch.no_grad():
        model(x), model(x)
        calls.clear()
        with forward_ad.dual_level():
            _, tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(x, draw())))
    assert not calls
    assert tangent is not None


@pytest.mark.parametrize("scale", [torch.ones(1, N), torch.tensor(1.0)])
def test_not_taken_with_a_scale_of_another_kind(scale, watched):
    model, _, calls = watched
    model.scale = torch.nn.Parameter(scale)
    x = draw()
    with torch.no_grad():
        model(x), model(x)
    assert not calls
