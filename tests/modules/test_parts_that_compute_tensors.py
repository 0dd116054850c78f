"""Parts whose weight is no plain Parameter, and parts that are no modules: read as PyTorch does."""

import pytest
import torch
from plain import run_parts

from cutlass_fused import nn

IN, OUT = 12, 20


class HalvedLinear(torch.nn.Linear):
    """Its parameters are those of a Linear, its weight is not."""

    weight = property(lambda self: self._parameters["weight"] * 0.5)


class ShiftedBatchNorm1d(torch.nn.BatchNorm1d):
    running_mean = property(lambda self: self._buffers["running_mean"] + 1)


def make_module(kind):
    torch.manual_seed(0)
    others = {nn.LinearScaleLeakyReLU: (2.0, 0.1), nn.LinearScaleBatchNorm1d: (OUT,)}
    return kind(IN, OUT, *others.get(kind, ())).eval()


KINDS = [nn.LinearScaleLeakyReLU, nn.LinearScaleBatchNorm1d, nn.LinearBatchNorm1dScaleSoftmax]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
def test_weight_that_is_a_property(kind):
    module, x = make_module(kind), torch.randn(5, IN)
    before = module(x)
    module.gemm.__class__ = HalvedLinear
    assert not torch.allclose(module(x), before)
    torch.testing.assert_close(module(x), run_parts(module, x))


@each_kind
def test_buffer_that_is_a_property(kind):
    if kind is nn.LinearScaleLeakyReLU:
        pytest.skip("has no batch norm")
    module, x = make_module(kind), torch.randn(5, IN)
    module.bn.__class__ = ShiftedBatchNorm1d
    torch.testing.assert_close(module(x), run_parts(module, x))


@each_kind
def test_function_in_place_of_a_part(kind):
    module, x = make_module(kind), torch.randn(5, IN)
    linear = module.gemm
    del module.gemm
    module.gemm = lambda x: 2 * linear(x)
    torch.testing.assert_close(module(x), run_parts(module, x))
