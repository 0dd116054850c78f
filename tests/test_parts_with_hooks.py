"""Hooks of a part do not run behind from_eager, which therefore refuses them."""

import functools

import pytest
import torch
from test_parts_with_a_forward import BUILD, IN, OUT, build
from torch.nn.utils import parametrizations, prune, spectral_norm

from cutlass_fused import nn


def double_result(module, arguments, result):
    return 2 * result


def double_input(module, arguments):
    return (2 * arguments[0],)


# One for each place where PyTorch keeps them.
REGISTER = {
    "forward": lambda module: module.register_forward_hook(double_result),
    "forward_pre": lambda module: module.register_forward_pre_hook(double_input),
    "backward": lambda module: module.register_full_backward_hook(lambda *arguments: None),
    "backward_pre": lambda module: module.register_full_backward_pre_hook(lambda *arguments: None),
}
each_place = pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
with_linear = pytest.mark.parametrize("kind", [kind for kind in BUILD if kind != "BatchNorm1d"])
with_batch_norm = pytest.mark.parametrize("kind", [kind for kind in BUILD if "BatchNorm1d" in kind])


@each_place
@with_linear
def test_linear_with_a_hook(kind, register):
    linear = torch.nn.Linear(IN, OUT)
    hook = register(linear)
    with pytest.raises(TypeError, match=f"^{kind}: linear must have no hooks, which would not run"):
        build(kind, linear=linear)
    hook.remove()
    build(kind, linear=linear)


@each_place
@with_batch_norm
def test_batch_norm_with_a_hook(kind, register):
    bn = torch.nn.BatchNorm1d(OUT)
    hook = register(bn)
    with pytest.raises(TypeError, match=f"^{kind}: bn must have no hooks, which would not run"):
        build(kind, bn=bn)
    hook.remove()
    build(kind, bn=bn)


@each_place
def test_activations_with_a_hook(register):
    softmax, leaky_relu = torch.nn.Softmax(dim=1), torch.nn.LeakyReLU(0.1)
    register(softmax), register(leaky_relu)
    with pytest.raises(TypeError, match="softmax must have no hooks"):
        nn.Softmax.from_eager(softmax)
    with pytest.raises(TypeError, match="negative_slope must have no hooks"):
        nn.LinearScaleLeakyReLU.from_eager(torch.nn.Linear(IN, OUT), 2.0, leaky_relu)


def test_all_are_named():
    linear = torch.nn.Linear(IN, OUT)
    linear.register_forward_hook(double_result)
    linear.register_forward_hook(functools.partial(double_result))
    linear.register_forward_pre_hook(double_input)
    with pytest.raises(TypeError, match="got double_input, double_result, partial$"):
        nn.Linear.from_eager(linear)


HOOKED_WEIGHTS = {
    "SpectralNorm": spectral_norm,
    "L1Unstructured": lambda linear: prune.l1_unstructured(linear, "weight", 0.5),
}


@pytest.mark.parametrize(("hook", "prepare"), HOOKED_WEIGHTS.items(), ids=HOOKED_WEIGHTS)
@with_linear
def test_weights_that_a_hook_prepares(kind, hook, prepare):
    with pytest.raises(TypeError, match=f"^{kind}: linear must have no hooks.* got {hook}$"):
        build(kind, linear=prepare(torch.nn.Linear(IN, OUT)))


@pytest.mark.parametrize("key", ["weight", "bias"])
def test_parametrized_parts_have_no_parameter_to_share(key):
    class Doubled(torch.nn.Module):
        def forward(self, value):
            return 2 * value

    linear, bn = torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT)
    for module, part, kind in ((linear, "linear", nn.Linear), (bn, "bn", nn.BatchNorm1d)):
        torch.nn.utils.parametrize.register_parametrization(module, key, Doubled())
        expected = f"^{kind.__name__}: {key} of {part} must be a torch.nn.Parameter or None, got"
        with pytest.raises(TypeError, match=expected):
            kind.from_eager(module)


def test_refused_parametrizations_are_not_updated():
    """That of the spectral norm is, whenever the weight is read in training."""
    linear = parametrizations.spectral_norm(torch.nn.Linear(IN, OUT))
    before = linear.parametrizations.weight[0]._u.clone()
    with pytest.raises(TypeError, match="must be a torch.nn.Parameter"):
        nn.Linear.from_eager(linear)
    assert torch.equal(linear.parametrizations.weight[0]._u, before)
