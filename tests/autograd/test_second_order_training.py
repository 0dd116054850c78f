"""What second derivatives are for: potentials trained on forces, equations solved by networks,
products with a Hessian. On the CPU in float64, beside the plain models."""

import pytest
import torch
from pairs import PAIRS
from plain import PlainLinearScaleBatchNorm1d, PlainLinearScaleLeakyReLU

from cutlass_fused import nn

pytestmark = pytest.mark.usefixtures("products")

WIDTH, ATOMS = 16, 12


def make_both(make):
    """Ours and the plain model, of the same numbers."""
    models = []
    for modules in (nn, None):
        torch.manual_seed(0)
        models.append(make(modules).double())
    return models


def make_potential(ours):
    layer = nn.LinearScaleLeakyReLU if ours else PlainLinearScaleLeakyReLU
    linear = nn.Linear if ours else torch.nn.Linear
    # A smooth one behind layers with a kink, whose second derivatives are 0.
    return torch.nn.Sequential(
        layer(3, WIDTH, 2.0, 0.1), torch.nn.Tanh(), layer(WIDTH, WIDTH, 0.5, 0.2), torch.nn.SiLU(),
        linear(WIDTH, 1),
    )  # fmt: skip


def make_normalized(ours):
    layer = nn.LinearScaleBatchNorm1d if ours else PlainLinearScaleBatchNorm1d
    linear = nn.Linear if ours else torch.nn.Linear
    return torch.nn.Sequential(
        layer(3, WIDTH, (WIDTH,)), torch.nn.Tanh(), layer(WIDTH, WIDTH, (1,)), torch.nn.Tanh(),
        linear(WIDTH, 1),
    )  # fmt: skip


def train_on_forces(model, steps=8):
    """The losses; that of a force is one of a gradient."""
    generator = torch.Generator().manual_seed(1)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.01), []
    positions = torch.randn(ATOMS, 3, dtype=torch.float64, generator=generator).requires_grad_()
    for _ in range(steps):
        energy = model(positions).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        loss = (positions.detach().sin() + gradient).square().mean() + energy.square() * 1e-3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("make", [make_potential, make_normalized])
def test_potential_that_is_trained_on_forces(make):
    ours, plain = map(train_on_forces, make_both(make))
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    if make is make_potential:
        assert ours[-1] < ours[0]


def test_running_statistics_of_a_potential():
    ours, plain = make_both(make_normalized)
    train_on_forces(ours), train_on_forces(plain)
    torch.testing.assert_close(ours.state_dict(), plain.state_dict(), rtol=1e-10, atol=1e-10)
    assert ours[0].bn.num_batches_tracked == 8


def solve(model, steps=5):
    """u_xx + u = 0 on some points: losses of a gradient of a gradient."""
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(-1, 1).requires_grad_()
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    for _ in range(steps):
        u = model(x)
        (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        loss = (u_xx + u).square().mean() + (u[0] - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), u_xx.detach()


def make_solver(ours):
    layer = nn.Linear if ours else torch.nn.Linear
    return torch.nn.Sequential(
        layer(1, WIDTH), torch.nn.Tanh(), layer(WIDTH, WIDTH), torch.nn.Tanh(), layer(WIDTH, 1)
    )


def test_equation():
    ours, plain = map(solve, make_both(make_solver))
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


def multiply_hessian(model, x, direction):
    """In reverse mode twice, over all parameters."""
    parameters = list(model.parameters())
    loss = model(x).tanh().square().sum()
    grads = torch.autograd.grad(loss, parameters, create_graph=True)
    flat = torch.cat([grad.flatten() for grad in grads])
    return torch.autograd.grad(flat @ direction, parameters, allow_unused=True)


@pytest.mark.parametrize("name", [name for name in PAIRS if "Softmax" != name])
def test_product_with_a_hessian(name):
    models = []
    for make in PAIRS[name]:
        torch.manual_seed(0)
        models.append(make().double())
    x = torch.randn(5, 4, dtype=torch.float64)
    direction = torch.randn(sum(p.numel() for p in models[0].parameters()), dtype=x.dtype)
    ours, plain = (multiply_hessian(model, x, direction) for model in models)
    for mine, theirs in zip(ours, plain, strict=True):
        # Of a bias in front of a batch norm all is 0.
        mine = torch.zeros_like(theirs) if mine is None else mine
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_product_with_a_hessian_of_torch_func():
    results = []
    for model in make_both(make_potential):
        parameters = {n: p.detach() for n, p in model.named_parameters()}
        x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

        def loss(parameters, model=model, x=x):
            return torch.func.functional_call(model, parameters, (x,)).tanh().sum()

        tangents = {n: p.sin() for n, p in parameters.items()}
        results.append(torch.func.jvp(torch.func.grad(loss), (parameters,), (tangents,)))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
