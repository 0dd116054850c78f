"""A thousand steps of training of small models: their losses stay as close to those of float64 as
eager fp32's do."""

import copy

import pytest
import torch
from accuracy import matmul_settings
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

STEPS, ROWS, WIDTH, CLASSES = 1000, 512, 128, 16
# A run of eager with the rows of each batch in another order rounds otherwise: so much is chance.
ORDERS = 3


class Regression:
    """A teacher's outputs, by layers of scale and LeakyReLU."""

    def build(self, fused: bool) -> torch.nn.Sequential:
        layer = nn.LinearScaleLeakyReLU if fused else PlainLinearScaleLeakyReLU
        linear = nn.Linear if fused else torch.nn.Linear
        arguments = (WIDTH, WIDTH, 1.5, 0.2)
        return torch.nn.Sequential(layer(*arguments), layer(*arguments), linear(WIDTH, CLASSES))

    def compute_loss(self, y, x, teacher):
        return (y - torch.tanh(x @ teacher)).square().mean()


class Classification:
    """The largest of a teacher's outputs, behind batch norms in training, by a softmax."""

    def build(self, fused: bool) -> torch.nn.Sequential:
        norm = nn.LinearScaleBatchNorm1d if fused else PlainLinearScaleBatchNorm1d
        head = nn.LinearBatchNorm1dScaleSoftmax if fused else PlainLinearBatchNorm1dScaleSoftmax
        linear = nn.Linear if fused else torch.nn.Linear
        layers = (linear(WIDTH, WIDTH), torch.nn.SiLU(), norm(WIDTH, WIDTH, (WIDTH,)))
        return torch.nn.Sequential(*layers, torch.nn.SiLU(), head(WIDTH, CLASSES))

    def compute_loss(self, y, x, teacher):
        return -(y.gather(1, (x @ teacher).argmax(1, keepdim=True)) + 1e-3).log().mean()


def train(task, model, dtype, order=0):
    """The loss of each step, of the same batches in every run."""
    model = copy.deepcopy(model).to("cuda", dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    draw = torch.Generator("cuda").manual_seed(5)
    shuffle = torch.Generator("cuda").manual_seed(order)
    options = {"device": "cuda", "generator": draw}
    teacher = torch.randn(WIDTH, CLASSES, **options).double() / WIDTH**0.5
    losses = []
    for _ in range(STEPS):
        x = torch.randn(ROWS, WIDTH, **options)
        if order:
            x = x[torch.randperm(ROWS, device="cuda", generator=shuffle)]
        optimizer.zero_grad()
        y = model(x.to(dtype))
        # What is to be learned is the same in all runs, and float64.
        loss = task.compute_loss(y.double(), x.double(), teacher)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("task", [Regression(), Classification()], ids=lambda t: type(t).__name__)
def test_losses(task):
    torch.manual_seed(0)
    plain, fused = task.build(fused=False), task.build(fused=True)
    fused.load_state_dict(plain.state_dict())
    truth = train(task, plain, torch.float64)
    assert truth[-100:].mean() < 0.7 * truth[:10].mean()  # it learns

    def measure(model, setting, order=0):
        with matmul_settings(setting):
            return (train(task, model, torch.float32, order) - truth).abs()

    eager = torch.stack([measure(plain, "ieee", order) for order in range(ORDERS)])
    ours, coarse = measure(fused, "ieee"), measure(fused, "tf32")
    for first in range(0, STEPS, 100):
        part = slice(first, first + 100)
        allowed = 2 * eager[:, part].max()
        assert ours[part].max() <= allowed, f"steps from {first}"
    assert coarse.max() > 2 * eager.max(), "TF32 is not seen"
