"""Forces of a potential, and an equation solved by a network, on the GPU: each step beside eager in
the same precision, truth in float64."""

import copy

import pytest
import torch
from accuracy import matmul_settings
from judge_gradients import judge_norms
from plain import PlainLinearScaleBatchNorm1d, PlainLinearScaleLeakyReLU

from cutlass_fused import functional, nn

pytestmark = pytest.mark.gpu

WIDTH, ATOMS = 128, 64


def make_potential(scaled, linear, norm):
    return torch.nn.Sequential(
        linear(3, WIDTH), torch.nn.Tanh(), scaled(WIDTH, WIDTH, 0.5, 1.0), torch.nn.SiLU(),
        linear(WIDTH, 1),
    )  # fmt: skip


def make_normalized(scaled, linear, norm):
    return torch.nn.Sequential(
        norm(3, WIDTH, (WIDTH,)), torch.nn.Tanh(), norm(WIDTH, WIDTH, (1,)), torch.nn.Tanh(),
        linear(WIDTH, 1),
    )  # fmt: skip


def make_solver(scaled, linear, norm):
    return torch.nn.Sequential(
        linear(3, WIDTH), torch.nn.Tanh(), linear(WIDTH, WIDTH), torch.nn.Tanh(), linear(WIDTH, 1)
    )


OURS = (nn.LinearScaleLeakyReLU, nn.Linear, nn.LinearScaleBatchNorm1d)
PLAIN = (PlainLinearScaleLeakyReLU, torch.nn.Linear, PlainLinearScaleBatchNorm1d)


def differentiate_forces(model, x):
    energy = model(x).sum()
    (forces,) = torch.autograd.grad(energy, x, create_graph=True)
    return {"forces": forces}, (forces + x.detach().sin()).square().sum()


def differentiate_equation(model, x):
    """A second derivative along x, and a loss of it."""
    u = model(x)
    (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x[:, 0].sum(), x, create_graph=True)
    return {"u_xx": u_xx}, (u_xx[:, :1] + u).square().sum()


CASES = {
    "forces": (make_potential, differentiate_forces),
    "forces behind batch norms": (make_normalized, differentiate_forces),
    "equation": (make_solver, differentiate_equation),
}


def take_step(model, x, differentiate):
    """What a step of training is given: gradients of the parameters, by name."""
    x = x.detach().to(next(model.parameters()).dtype).requires_grad_()
    found, loss = differentiate(model, x)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    found = {name: t.detach() for name, t in found.items()}
    # That of a bias in front of a batch norm is 0, which eager gives but for rounding errors.
    return found | {
        name: grad
        for name, grad in zip(names, grads, strict=True)
        if grad is not None and not name.endswith(("bias", "scale"))
    }


@pytest.mark.parametrize("case", CASES)
def test_fp32(device, case):
    make, differentiate = CASES[case]
    torch.manual_seed(0)
    ours = make(*OURS).to(device)
    torch.manual_seed(0)
    plain = make(*PLAIN).to(device)
    exact = copy.deepcopy(plain).double()
    x = torch.randn(ATOMS, 3, device=device, generator=torch.Generator(device).manual_seed(1))
    with matmul_settings("ieee"):
        mine = take_step(ours, x, differentiate)
        eager = take_step(plain, x, differentiate)
    judge_norms(mine, eager, take_step(exact, x, differentiate))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_second_derivatives_of_a_trained_scale(device, dtype):
    """Of a sum of squares of gradients, by all that they are of."""
    torch.manual_seed(0)
    shapes = {"x": (192, 64), "weight": (WIDTH, 64), "bias": (WIDTH,), "scale": (WIDTH,)}
    drawn = {name: torch.randn(shape, device=device) / 4 for name, shape in shapes.items()}
    leaves = {name: each.to(dtype).requires_grad_() for name, each in drawn.items()}
    wide = {name: each.detach().double().requires_grad_() for name, each in leaves.items()}

    def plain(x, weight, bias, scale, slope):
        z = torch.nn.functional.linear(x, weight, bias) * scale
        return torch.nn.functional.leaky_relu(z, slope)

    def run(function, given):
        y = torch.tanh(function(*given.values(), 0.1))
        first = torch.autograd.grad(y.sum(), list(given.values()), create_graph=True)
        total = sum(each.square().sum() for each in first)
        second = torch.autograd.grad(total, list(given.values()))
        return dict(zip(given, second, strict=True))

    with matmul_settings("ieee"):
        mine, eager = run(functional.linear_scale_leaky_relu, leaves), run(plain, leaves)
    judge_norms(mine, eager, run(plain, wide))


@pytest.mark.parametrize("case", CASES)
def test_training_in_bf16(device, case):
    """Some steps run and are finite."""
    make, differentiate = CASES[case]
    torch.manual_seed(0)
    model = make(*OURS).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    x = torch.randn(ATOMS, 3, device=device).bfloat16().requires_grad_()
    for _ in range(3):
        _, loss = differentiate(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert torch.isfinite(loss)
