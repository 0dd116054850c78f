"""Steps of training under DistributedDataParallel, beside those of the plain model: CASES for
processes.py."""

import functools
import itertools

import torch
from norm_modules import IN, OUT
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch.nn.parallel import DistributedDataParallel

from cutlass_fused import nn

CASES = {}
ROWS, STEPS = 12, 3


def build_models():
    """Ours and the plain one, with the same parameters."""
    kinds = (
        (torch.nn.Linear, nn.Linear, (IN, IN), {}),
        (PlainLinearScaleLeakyReLU, nn.LinearScaleLeakyReLU, (IN, IN, 2.0, 0.1), {}),
        (PlainLinearScaleBatchNorm1d, nn.LinearScaleBatchNorm1d, (IN, IN, (IN,)), {}),
        (PlainLinearBatchNorm1dScaleSoftmax, nn.LinearBatchNorm1dScaleSoftmax, (IN, OUT), {}),
    )
    models = []
    for ours in (False, True):
        torch.manual_seed(7)
        layers = [kind[ours](*arguments) for *kind, arguments, _ in kinds]
        models.append(torch.nn.Sequential(*layers).double())
    plain, ours = models
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def train(model, accumulate, **options):
    """The parameters and buffers after some steps, whose batches differ from process to process."""
    parallel = DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(11 + torch.distributed.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        if accumulate:
            with parallel.no_sync():
                run_backward(parallel, generator)
        run_backward(parallel, generator)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return model.state_dict()


def run_backward(parallel, generator):
    x = torch.randn(ROWS, IN, dtype=torch.float64, generator=generator)
    y = parallel(x)
    (y * torch.linspace(0.5, 1.5, y.shape[1], dtype=y.dtype)).square().sum().backward()


def check(**options):
    plain, ours = build_models()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    expected, found = train(plain, **options), train(ours, **options)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert any(not torch.equal(before[name], value) for name, value in found.items())
    # All processes have the same parameters.
    for value in ours.parameters():
        others = [torch.empty_like(value) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(others, value.detach())
        assert all(torch.equal(other, value) for other in others)


VIEWS = {"": {}, ", buckets as gradients": {"gradient_as_bucket_view": True}}
WAYS = {"each step": {"accumulate": False}, "accumulated": {"accumulate": True}}
for (way, first), (view, second) in itertools.product(WAYS.items(), VIEWS.items()):
    CASES[f"data parallel, {way}{view}"] = functools.partial(check, **first, **second)
