"""The models of examples/models: their sizes, and what their papers say they compute."""

import inspect

import pytest
import torch
from documents import TEXTS, list_blocks

from bench.steps import models as steps
from examples.models import EXAMPLES, NEIGHBOURS_SHAPE, pinn, potential
from examples.models.stylegan2_mapping import NormalizeLatent

# Counted by hand from the widths that each paper gives.
PARAMETERS = {
    "stylegan2_mapping": 8 * (512 * 512 + 512),
    "pointnet_head": (1024 + 1 + 2) * 512 + (512 + 1 + 2) * 256 + (256 + 1) * 40,
    # In front, two blocks of a batch norm and two layers, the last batch norm, the last layer.
    "tabular_resnet": 55 * 192 + 2 * (2 * 192 + 193 * 384 + 385 * 192) + 2 * 192 + 193 * 7,
    "vit_mlp": 2 * 768 + 769 * 3072 + 3073 * 768,
    "dlrm_top": 480 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257,
    "pinn": 3 * 20 + 7 * 21 * 20 + 21,
    "potential": 65 * 128 + 129 * 128 + 129 * 64 + 65,
    "moe_router": 2048 * 64,
}
RESULTS = {"stylegan2_mapping": 512, "pointnet_head": 40, "tabular_resnet": 7, "vit_mlp": 768}
RESULTS |= {"dlrm_top": 1, "pinn": 1, "potential": 1, "moe_router": 64}

each_model = pytest.mark.parametrize("name", EXAMPLES)


def call(model, x):
    y = model(x)
    return y[0] if isinstance(y, tuple) else y


@each_model
def test_sizes_are_those_of_the_paper(name):
    model = EXAMPLES[name].build()
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    x = EXAMPLES[name].draw(3)
    assert x.dtype == torch.float32 and len(x) == 3
    assert call(model, x).shape == (3, RESULTS[name])


def test_example_in_the_readme_runs():
    for example in list_blocks(TEXTS["examples/README.md"], "python"):
        found = {}
        exec(compile(example, "the example", "exec"), found)
        assert found["y"].shape == (256, 1)


@each_model
def test_models_are_plain(name):
    """They import torch alone, and nothing of what they are to be fused by."""
    source = inspect.getsource(inspect.getmodule(EXAMPLES[name].build))
    assert "cutlass_fused" not in source
    for module in EXAMPLES[name].build().modules():
        assert type(module).__module__.partition(".")[0] in ("torch", "examples")


@each_model
def test_a_row_does_not_depend_on_the_others(name):
    """In inference; so a server may pad a batch."""
    model, x = EXAMPLES[name].build().eval().double(), EXAMPLES[name].draw(4).double()
    torch.testing.assert_close(call(model, x)[1:2], call(model, x[1:2]))


def test_latents_are_normalized():
    z = 7 * torch.randn(5, 512)
    rms = NormalizeLatent()(z).square().mean(dim=1).sqrt()
    torch.testing.assert_close(rms, torch.ones(5))


def test_dropout_is_left_out_of_what_is_timed():
    for build, k, n in (
        (steps.build_pointnet_head, 1024, 40),
        (steps.build_tabular_resnet, 54, 7),
        (steps.build_vit_mlp, 768, 768),
    ):
        timed, name = build(k, n), build.__name__.removeprefix("build_")
        published = EXAMPLES[name].build()
        kinds = [[type(m) for m in model.modules()] for model in (timed, published)]
        assert torch.nn.Dropout not in kinds[0] and torch.nn.Dropout in kinds[1]
        assert kinds[0] == [kind for kind in kinds[1] if kind is not torch.nn.Dropout]


def test_probabilities_of_clicks():
    y = EXAMPLES["dlrm_top"].build()(EXAMPLES["dlrm_top"].draw(50))
    assert ((0 < y) & (y < 1)).all()


def test_residual_is_that_of_burgers_equation():
    """u = x^2 t: u_t + u u_x - viscosity u_xx."""
    points = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    x, t = points[:, :1], points[:, 1:]
    found = pinn.compute_residual(lambda p: p[:, :1] ** 2 * p[:, 1:], points)
    torch.testing.assert_close(found, x**2 + x**2 * t * 2 * x * t - pinn.VISCOSITY * 2 * t)


# ---- the potential ----


def test_forces_are_the_slope_of_the_energy():
    model = EXAMPLES["potential"].build().double()
    x = EXAMPLES["potential"].draw(3).double().requires_grad_()
    forces, step = potential.compute_forces(model, x), 1e-6
    assert forces.shape == (3, *NEIGHBOURS_SHAPE)
    direction = torch.randn_like(x)
    with torch.no_grad():
        slope = (model(x + step * direction) - model(x - step * direction)).sum() / (2 * step)
    torch.testing.assert_close(-(forces * direction).sum(), slope)
    trained = potential.compute_trained_forces(model, x)
    assert trained.requires_grad and not forces.requires_grad
    torch.testing.assert_close(trained.detach(), forces)


def test_energy_knows_neither_directions_nor_atoms_that_are_far():
    model, x = EXAMPLES["potential"].build(), EXAMPLES["potential"].draw(6)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3))
    torch.testing.assert_close(model(x @ rotation), model(x), rtol=1e-4, atol=1e-5)
    swapped = x.flip(2)  # the neighbours of one element
    torch.testing.assert_close(model(swapped), model(x), rtol=1e-4, atol=1e-5)
    x[:, 2, 1] *= 100
    farther = x.clone()
    farther[:, 2, 1] *= 2
    assert torch.equal(model(farther), model(x))
    assert not torch.equal(model(x.flip(1)), model(x))  # the elements


def test_drawn_neighbours_are_within_the_cutoff():
    r = EXAMPLES["potential"].draw(100).norm(dim=-1)
    assert potential.FIRST_SHELL - 1e-4 < r.min() and r.max() < potential.CUTOFF + 1e-4


# ---- the router ----


def test_head_of_the_router_stays_in_fp32():
    router, x = EXAMPLES["moe_router"].build(), EXAMPLES["moe_router"].draw(9).bfloat16()
    probabilities, weights, experts = router(x)
    assert probabilities.dtype == weights.dtype == torch.float32
    expected = torch.softmax(x.float() @ router.gate.weight.T, dim=1)
    torch.testing.assert_close(probabilities, expected)
    assert weights.shape == experts.shape == (9, 6)
    torch.testing.assert_close(probabilities.gather(1, experts), weights)
    rest = probabilities.scatter(1, experts, 0.0)
    assert (rest.amax(dim=1) <= weights.amin(dim=1)).all()
