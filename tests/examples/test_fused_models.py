"""The models of examples/models behind `cutlass_fused.fuse`: as they are, they compute the same."""

import copy

import pytest
import torch

import cutlass_fused
from bench.steps.models import draw_weights
from examples.models import EXAMPLES, pinn, potential

each_model = pytest.mark.parametrize("name", EXAMPLES)
ROWS = 6


def call(model, x):
    y = model(x)
    return y[0] if isinstance(y, tuple) else y


def make_pair(name, **how):
    """Plain and fused, over parameters and statistics of their own, and x."""
    plain, x = EXAMPLES[name].build().double(), EXAMPLES[name].draw(ROWS).double()
    draw_weights(plain)
    fused = copy.deepcopy(plain)
    return plain, fused, cutlass_fused.fuse(fused, **how), x.requires_grad_()


@each_model
def test_every_linear_is_fused(name):
    plain, fused, report, x = make_pair(name)
    linears = [module for module in plain.modules() if isinstance(module, torch.nn.Linear)]
    assert len(report.sites) == len(linears) > 0 and report.left == []
    # A call of them reaches our functions.
    fused(x)
    called = [site for site in report.sites if site.last is not None]
    assert len(called) == len(linears) and all(site.last.why is None for site in called)


@each_model
@pytest.mark.parametrize("is_training", [False, True], ids=["inference", "step"])
def test_results_gradients_and_statistics(name, is_training):
    """With the dropout of the paper: it draws the same numbers."""
    plain, fused, _, x = make_pair(name)
    found = []
    for model in (plain.train(is_training), fused.train(is_training)):
        torch.manual_seed(1)
        y = call(model, x)
        parameters = dict(model.named_parameters())
        slopes = torch.autograd.grad(y.square().sum(), [x, *parameters.values()])
        found.append({"y": y, **dict(zip(["x", *parameters], slopes, strict=True))})
        found[-1] |= dict(model.named_buffers())
    ours, expected = found[1], found[0]
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(ours[key], value, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize(
    "name, compute",
    [
        ("pinn", pinn.compute_residual),
        ("potential", potential.compute_trained_forces),
    ],
)
def test_losses_of_derivatives(name, compute):
    plain, fused, _, x = make_pair(name)
    found = []
    for model in (plain, fused):
        loss = compute(model, x).square().sum()
        parameters = list(model.parameters())
        slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
        found.append([loss, *(slope for slope in slopes if slope is not None)])
    # Forces do not know the last bias.
    assert len(found[0]) == len(parameters) + (name == "pinn")
    for ours, expected in zip(*reversed(found), strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-10)


@each_model
def test_the_model_stays_the_users(name):
    model = EXAMPLES[name].build()
    tensors = [*model.parameters(), *model.buffers()]
    keys = list(model.state_dict())
    cutlass_fused.fuse(model)
    assert list(model.state_dict()) == keys
    assert all(
        a is b for a, b in zip([*model.parameters(), *model.buffers()], tensors, strict=True)
    )
    assert any("forward" in module.__dict__ for module in model.modules())
    cutlass_fused.unfuse(model)
    assert not any("forward" in module.__dict__ for module in model.modules())
