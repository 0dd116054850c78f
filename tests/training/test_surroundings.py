"""Steps of training as programs take them: scaled losses, checkpoints, graphs."""

import pytest
import torch
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from cutlass_fused import nn

pytestmark = pytest.mark.usefixtures("language")

ROWS, IN, OUT = 12, 10, 6
KINDS = {
    "Linear": (nn.Linear, torch.nn.Linear, (IN, OUT)),
    "LeakyReLU": (nn.LinearScaleLeakyReLU, PlainLinearScaleLeakyReLU, (IN, OUT, 2.0, 0.1)),
    "BatchNorm": (nn.LinearScaleBatchNorm1d, PlainLinearScaleBatchNorm1d, (IN, OUT, (OUT,))),
    "Softmax": (nn.LinearBatchNorm1dScaleSoftmax, PlainLinearBatchNorm1dScaleSoftmax, (IN, OUT)),
}
each_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def build(name, dtype=torch.float64):
    """Ours and the plain one, with the same parameters."""
    ours, plain, arguments = KINDS[name]
    models = []
    for kind in (ours, plain):
        torch.manual_seed(7)
        models.append(kind(*arguments).to(dtype))
    return models


def draw(dtype=torch.float64):
    return torch.randn(ROWS, IN, dtype=dtype, generator=torch.Generator().manual_seed(3))


def find_loss(y):
    return (y * torch.linspace(0.5, 1.5, y.shape[1], dtype=y.dtype)).square().sum()


def run_backward(model, x, wrap=lambda model: model):
    """The gradients of the parameters and of x."""
    x = x.clone().requires_grad_()
    find_loss(wrap(model)(x)).backward()
    return [parameter.grad for parameter in model.parameters()] + [x.grad]


def check_alike(name, wrap, plain_wrap=lambda model: model):
    ours, plain = build(name)
    x = draw()
    torch.testing.assert_close(run_backward(ours, x, wrap), run_backward(plain, x, plain_wrap))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))


@pytest.mark.parametrize("reentrant", [True, False])
@each_kind
def test_checkpoints(name, reentrant):
    """A batch norm in training moves its statistics once more in the second run, as PyTorch's."""

    def wrap(model):
        return lambda x: checkpoint(model, x, use_reentrant=reentrant)

    check_alike(name, wrap, wrap)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@each_kind
def test_graphs(name, backend):
    """Forward and backward, without a break."""
    counters.clear()
    check_alike(name, lambda model: torch.compile(model, backend=backend, fullgraph=True))
    assert not counters["graph_break"]


@each_kind
def test_checkpoints_in_graphs(name):
    """There statistics move once, as those of the plain model in a graph."""

    def wrap(model):
        def run(x):
            return checkpoint(model, x, use_reentrant=False)

        return torch.compile(run, backend="aot_eager", fullgraph=True)

    check_alike(name, wrap, wrap)


@each_kind
def test_compiled_autograd(name):
    """Of calls that were eager."""
    ours, plain = build(name)
    x = draw()
    expected = run_backward(plain, x)
    leaf = x.clone().requires_grad_()
    loss = find_loss(ours(leaf))
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        loss.backward()
    torch.testing.assert_close([p.grad for p in ours.parameters()] + [leaf.grad], expected)


@pytest.mark.parametrize("activation", [torch.nn.GELU, torch.nn.ReLU, torch.nn.Tanh])
def test_compiled_autograd_of_programs(activation):
    """A gradient, and that of a loss of one."""
    linear = torch.nn.Linear(IN, OUT).double()
    plain = torch.nn.Sequential(linear, activation())
    ours = nn.LinearActivation.from_eager(linear, activation())
    losses = []
    for model in (plain, ours):
        x = draw().requires_grad_()
        loss = find_loss(model(x))
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        losses.append((x, loss, slope.square().sum()))
    for which in (1, 2):
        expected = torch.autograd.grad(losses[0][which], linear.parameters(), retain_graph=True)
        for parameter in linear.parameters():
            parameter.grad = None
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            losses[1][which].backward(retain_graph=True)
        torch.testing.assert_close([p.grad for p in linear.parameters()], list(expected))


@each_kind
def test_scaled_losses(name):
    """fp16 under autocast: a step that overflows is left out, and the others are as plain ones."""
    models, results = build(name, torch.float32), []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2)
        generator, skipped = torch.Generator().manual_seed(5), 0
        for _ in range(40):
            x = torch.randn(ROWS, IN, generator=generator)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = find_loss(model(x).float())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before, scale = [p.detach().clone() for p in model.parameters()], scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() < scale:
                skipped += 1
                assert all(map(torch.equal, before, model.parameters()))
        assert 0 < skipped < 40
        results.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*results, rtol=0.05, atol=0.05)
