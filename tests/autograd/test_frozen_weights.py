"""Gradients of x beside a weight that is not trained: when parts of its columns are asked for."""

import pytest
import torch

from cutlass_fused import functional, nn
from cutlass_fused.functional import _product

IN, OUT = 6, 4
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
each_module = pytest.mark.parametrize("name", MODULES)


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The weights that were asked for. Ops multiply, as of float32 on a GPU, here float64."""
    weights = []

    def find_split(weight, precision, given=None, of_columns=False):
        assert precision == "ieee" and given is None and of_columns
        weights.append(weight)

    monkeypatch.setattr(_product, "_has_kernel", lambda a: True)
    monkeypatch.setattr(_product, "find_split", find_split)
    return weights


def make_module(name, trained=False):
    """And its weight."""
    torch.manual_seed(0)
    module = MODULES[name](IN, OUT, precision="ieee", dtype=torch.float64).eval()
    module.requires_grad_(trained)
    return module, getattr(module, "gemm", module).weight


def make_x():
    return torch.randn(5, IN, dtype=torch.float64, requires_grad=True)


def take_gradient(y, x, **options):
    return torch.autograd.grad(y.sin().sum(), x, **options)[0]


@each_module
def test_a_frozen_weight(name, asked):
    module, weight = make_module(name)
    x = make_x()
    gradient = take_gradient(module(x), x)
    assert len(asked) == 1 and asked[0] is weight  # by which its parts are found
    trained, _ = make_module(name, trained=True)
    torch.testing.assert_close(gradient, take_gradient(trained(x), x))


def test_a_weight_that_is_no_parameter(asked):
    """It may be computed anew for every call."""
    x, weight = make_x(), torch.randn(OUT, IN, dtype=torch.float64)
    take_gradient(functional.linear(x, weight), x)
    assert not asked


@each_module
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_weight_that_is_trained(name, when, asked):
    """Even if it is only by the time of the backward pass."""
    module, weight = make_module(name, trained=when == "before")
    x = make_x()
    y = module(x)
    weight.requires_grad_()
    take_gradient(y, x)
    assert not asked


@each_module
def test_gradients_that_are_differentiated(name, asked):
    module, _ = make_module(name)
    assert torch.autograd.gradgradcheck(module, make_x())
    asked.clear()
    x = make_x()
    first = take_gradient(module(x), x, create_graph=True)
    assert not asked and first.requires_grad


@each_module
def test_torch_func(name, asked):
    module, _ = make_module(name)
    x = make_x().detach()

    def find(row):
        return torch.func.grad(lambda x: module(x[None]).sin().sum())(row)

    torch.func.vmap(find)(x)
    torch.func.jvp(find, (x[0],), (x[1],))
    assert not asked
