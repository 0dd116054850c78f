"""Gradients of x alone, as of forces and in front of layers that are not trained: what is kept of
the weight for them."""

import pytest
import torch

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.weights import splits as weight_splits

pytestmark = pytest.mark.gpu

IN, OUT = 200, 136
MODULES = {
    "Linear": nn.Linear,
    "LinearScaleLeakyReLU": lambda *sizes, **options: nn.LinearScaleLeakyReLU(
        *sizes, 2.0, 0.1, **options
    ),
    "LinearScaleBatchNorm1d": lambda *sizes, **options: nn.LinearScaleBatchNorm1d(
        *sizes, (OUT,), **options
    ),
    "LinearBatchNorm1dScaleSoftmax": nn.LinearBatchNorm1dScaleSoftmax,
}


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Small products too, which would be multiplied as they lie."""
    torch.ops.cutlass_fused.force_tile("split_rows")


@pytest.fixture(autouse=True)
def splits(monkeypatch):
    """What was split, in order."""
    cutlass_fused.invalidate()
    made, split = [], weight_splits._cache._split

    def count(matrix, precision):
        made.append(matrix)
        return split(matrix, precision)

    monkeypatch.setattr(weight_splits._cache, "_split", count)
    yield made
    cutlass_fused.invalidate()


def make_module(name, precision):
    torch.manual_seed(0)
    module = MODULES[name](IN, OUT, precision=precision).cuda().eval()
    return module, torch.randn(70, IN, device="cuda")


def find_gradient(module, x):
    """Of x alone."""
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(module(leaf).square().sum(), leaf)
    return gradient


def check_gradient(gradient, module, x):
    """Bit for bit what it is with a split that is made for it."""
    with weight_splits.split_in_every_call():
        assert torch.equal(gradient, find_gradient(module, x))


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("name", MODULES)
def test_a_frozen_weight_is_split_once(splits, name, precision):
    module, x = make_module(name, precision)
    module.requires_grad_(False)
    gradients = [find_gradient(module, x) for _ in range(3)]
    assert len(splits) == 2  # its rows, and its columns
    for gradient in gradients:
        check_gradient(gradient, module, x)
    getattr(module, "gemm", module).weight.mul_(2)
    check_gradient(find_gradient(module, x), module, x)
    assert len(splits) == 4


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_kept_of_a_weight_that_is_trained(splits, name):
    module, x = make_module(name, "ieee")
    find_gradient(module, x)
    assert len(splits) == len(weight_splits._cache) == 0
