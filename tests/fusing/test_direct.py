"""Calls of ops by the shortest way: what they give, and when a site takes that way."""

import contextlib
import copy

import pytest
import torch
from linear_tails import CASES, Behind, K, ManyScales, N
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch.autograd import forward_ad
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.functional._derived import native

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


def find_direct(site, x):
    weight, bias, _, operands = site.take(x, ())
    return site.call.find_direct(x, weight, bias, operands, None)


@every_mode
@pytest.mark.parametrize("target", TARGETS)
def test_gives_what_the_function_gives(target, training):
    model, site = make_site(target, training)
    twin, other = make_site(target, training)
    twin.load_state_dict(copy.deepcopy(model.state_dict()))
    x = draw()
    with torch.no_grad():
        for _ in range(2):
            y = call(site, x, find_direct(site, x))
            assert torch.equal(y, call(other, x, other.call.run, out_dtype=None))
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_batch_of_one_is_refused():
    model, site = make_site("33", True)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad(), pytest.raises(ValueError, match="more than 1 value per channel"):
        call(site, draw(1), find_direct(site, draw()))
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )


@pytest.fixture(params=["33", "gelu", "program"])
def watched(request):
    """A fused model, and its direct calls, as if x were on a GPU."""
    if request.param == "33":
        model, site = make_site("33", False)
    else:
        model = Behind(TAILS[request.param])
        (site,) = cutlass_fused.fuse(model, precision="ieee").sites
    return model, site, watch_direct(site)


def watch_direct(site):
    calls, asked, find = [], site._may_be_direct, site.call.find_direct

    def pretend(x, *others):
        class OnGpu:
            is_cuda, dtype, device = True, x.dtype, x.device
            is_floating_point = x.is_floating_point

        return asked(OnGpu, *others)

    def watch(*given):
        run = find(*given)
        return run and (lambda *args: calls.append(args) or run(*args))

    site._may_be_direct = pretend
    site.call = site.call._replace(find_direct=watch)
    return calls


TAILS = {
    "gelu": lambda m, z, x: F.gelu(z),
    "program": lambda m, z, x: torch.tanh(z * 2) + z,
}


def test_taken_behind_a_decision(watched):
    model, _, calls = watched
    x = draw()
    with torch.no_grad():
        first, second = model(x), model(x)
    assert len(calls) == 1  # the first call was the function's
    assert torch.equal(first, second)


@pytest.mark.parametrize("watched", ["33"], indirect=True)
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


@pytest.mark.parametrize("watched", ["gelu", "program"], indirect=True)
def test_gradients_of_programs(watched):
    """By C++ where the library for them is there; a parameter that is frozen asks anew."""
    model, _, calls = watched
    plain, x = copy.deepcopy(model), draw()
    cutlass_fused.unfuse(plain)
    for _ in range(3):
        y, expected = model(x), plain(x)
        assert torch.allclose(y, expected, atol=1e-6)
        for ours, theirs in zip(
            torch.autograd.grad(y.sum(), model.parameters()),
            torch.autograd.grad(expected.sum(), plain.parameters()),
            strict=True,
        ):
            assert torch.allclose(ours, theirs, atol=1e-5)
    assert len(calls) == (2 if native.is_defined() else 0)
    model.fc.weight.requires_grad_(False)
    (only,) = torch.autograd.grad(model(x).sum(), model.fc.bias)
    assert torch.allclose(only, torch.autograd.grad(plain(x).sum(), plain.fc.bias)[0], atol=1e-5)


def test_gradient_of_an_operand_that_gets_one_later():
    model = Behind(
        lambda m, z, x: torch.tanh(z * 2) * m.scale, scale=torch.nn.Parameter(torch.ones(N))
    )
    model.requires_grad_(False)
    (site,) = cutlass_fused.fuse(model, precision="ieee").sites
    calls, x = watch_direct(site), draw()
    model(x), model(x)
    assert len(calls) == 1
    model.scale.requires_grad_()
    for _ in range(3):
        (found,) = torch.autograd.grad(model(x).sum(), model.scale)
        assert torch.allclose(found, torch.tanh(model.fc(x) * 2).sum(0), atol=1e-5)


def test_without_a_bias_that_was_there():
    model = Behind(TAILS["gelu"])
    cutlass_fused.fuse(model)
    x = draw()
    with torch.no_grad():
        model(x)
        model.fc.bias = None
        assert torch.allclose(model(x), F.gelu(x @ model.fc.weight.t()), atol=1e-6)


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


@pytest.mark.parametrize("watched", ["33"], indirect=True)
@pytest.mark.parametrize("scale", [torch.ones(1, N), torch.tensor(1.0)])
def test_not_taken_with_a_scale_of_another_kind(scale, watched):
    model, _, calls = watched
    model.scale = torch.nn.Parameter(scale)
    x = draw()
    with torch.no_grad():
        model(x), model(x)
    assert not calls


# In eager mode, and where autocast takes x and weight in another dtype.
SETTINGS = {
    "plain": contextlib.nullcontext,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


def is_composed(make, setting, is_trained=True):
    """Whether a call that has run has gradients by PyTorch's ops alone, which ends its chain."""
    model, x = make(), torch.randn(5, K)
    (site,) = cutlass_fused.fuse(model).sites
    with SETTINGS[setting](), torch.set_grad_enabled(is_trained):
        y = model(x)
        weight, bias, _, operands = site.take(x, tuple(getattr(model, "scales", ())))
        assert site.last.why is None
        return site.call.is_composed(x, weight, bias, operands, y.dtype)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "name",
    [
        *("layer norm", "gelu, softmax", "log softmax", "gelu of tanh", "windows"),
        "largest, less the mean, gelu",
    ],
)
def test_programs_are_not_composed(name, setting):
    assert not is_composed(CASES[name].make, setting)


@pytest.mark.parametrize("setting", SETTINGS)
def test_gradients_that_are_no_programs(setting):
    assert is_composed(ManyScales, setting)
    assert not is_composed(ManyScales, setting, is_trained=False)


@pytest.mark.parametrize("name", ["scale, leaky", "nothing", "batch norm"])
def test_calls_of_their_own_are_not_composed(name):
    assert not is_composed(CASES[name].make, "plain")
