"""Gradients of first and second order of LinearActivation, by programs, beside float64."""

import pytest
import torch

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

SETTINGS = {
    "ieee": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, None),
}
ACTIVATIONS = {"silu": torch.nn.SiLU, "tanh": torch.nn.Tanh, "gelu": torch.nn.GELU}
# A width whose product has no kernel with a hole, and one whose product has, over several tiles.
WIDTHS = (64, 512)
ROWS = 1000  # no multiple of a tile


def build(kind, width, dtype, device):
    torch.manual_seed(3)
    parts = [each for _ in range(2) for each in (torch.nn.Linear(width, width), kind())]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(width, 1)).to(device, dtype)
    x = torch.randn(ROWS, width, device=device).to(dtype).requires_grad_()
    return model, x


def replace(model, precision):
    parts = list(model)
    ours = [nn.LinearActivation.from_eager(*parts[i : i + 2], precision=precision) for i in (0, 2)]
    return torch.nn.Sequential(*ours, nn.Linear.from_eager(parts[4], precision=precision))


def replace_products(model, precision):
    """The same products, and PyTorch's activations behind them."""
    linears = torch.nn.Linear
    return torch.nn.Sequential(
        *(
            nn.Linear.from_eager(each, precision=precision) if isinstance(each, linears) else each
            for each in model
        )
    )


def differentiate(model, x):
    """The gradients of a loss, the forces, and the gradients of a loss of forces."""
    parameters = list(model.parameters())
    first = torch.autograd.grad(model(x).square().mean(), [x, *parameters])
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    second = torch.autograd.grad(slope.square().sum(), parameters, allow_unused=True)
    return [*first, slope.detach(), *(each for each in second if each is not None)]


def find_errors(found, exact):
    return [((f.double() - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_beside_float64(setting, activation, width, device):
    """At most twice the error of eager, or of the same products with PyTorch's activations: sums on
    tensor cores are rounded towards zero, which a sum over rows adds up. And the rounding of the
    last step."""
    dtype, precision = SETTINGS[setting]
    model, x = build(ACTIVATIONS[activation], width, dtype, device)
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if setting == "tf32" else "ieee"
    try:
        eager = differentiate(model, x)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    ours = differentiate(replace(model, precision), x)
    composed = differentiate(replace_products(model, precision), x)
    exact = differentiate(model.double(), x.detach().double().requires_grad_())
    eps, errors = (
        torch.finfo(dtype).eps,
        (find_errors(each, exact) for each in (ours, eager, composed)),
    )
    for index, (error, *others) in enumerate(zip(*errors, strict=True)):
        assert error <= 2 * max(others) + eps, (index, error, others)


def test_kept_graph_and_hooks(device):
    model, x = build(torch.nn.SiLU, 512, torch.float32, device)
    ours, seen = replace(model, "ieee"), []
    ours[0].weight.register_hook(lambda grad: seen.append(grad.clone()))
    (slope,) = torch.autograd.grad(ours(x).sum(), x, create_graph=True)
    loss = slope.square().sum()
    loss.backward(retain_graph=True)
    first = ours[0].weight.grad.clone()
    loss.backward()
    assert torch.equal(ours[0].weight.grad, first + first)
    assert len(seen) == 2 and torch.equal(seen[0], first)


def test_two_streams(device):
    model, x = build(torch.nn.Tanh, 512, torch.float32, device)
    ours = replace(model, "ieee")
    expected = differentiate(ours, x)
    torch.cuda.synchronize()
    found = []
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            found.append(differentiate(ours, x))
    torch.cuda.synchronize()
    for each in found:
        for one, other in zip(each, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_launches(device):
    """Of a step on forces: a kernel for each gradient, and no pointwise ones of PyTorch but sums of
    two gradients of a weight."""
    model, x = build(torch.nn.SiLU, 512, torch.float32, device)
    ours = replace(model, "ieee")

    def step():
        (slope,) = torch.autograd.grad(ours(x).sum(), x, create_graph=True)
        slope.backward(torch.ones_like(slope))

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert sum("cutlass_fused_pointwise" in name for name in names) >= 4
    assert not any("sigmoid" in name or "silu" in name for name in names)
