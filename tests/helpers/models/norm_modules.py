"""The modules with a batch norm, each beside its plain model."""

import pytest
import torch
from plain import PlainLinearBatchNorm1dScaleSoftmax, PlainLinearScaleBatchNorm1d

from cutlass_fused import nn

IN, OUT = 12, 20


class Pair:
    """A plain model and ours, built from the same arguments."""

    def __init__(self, plain, ours, *arguments, has_product=True):
        self.plain, self.ours, self.arguments = plain, ours, arguments
        self.has_product = has_product

    def __str__(self):
        return self.ours.__name__

    @property
    def width(self):
        return IN if self.has_product else OUT

    def build(self, **options):
        """Both under the same seed."""
        models = []
        for kind in (self.plain, self.ours):
            torch.manual_seed(7)
            models.append(kind(*self.arguments, **options))
        return models

    def draw(self, *leading, dtype=torch.float32):
        return torch.randn(*leading, self.width).to(dtype)


SCALE_NORM = Pair(PlainLinearScaleBatchNorm1d, nn.LinearScaleBatchNorm1d, IN, OUT, (OUT,))
NORM_SOFTMAX = Pair(PlainLinearBatchNorm1dScaleSoftmax, nn.LinearBatchNorm1dScaleSoftmax, IN, OUT)
NORM = Pair(torch.nn.BatchNorm1d, nn.BatchNorm1d, OUT, has_product=False)
FUSED, PAIRS = (SCALE_NORM, NORM_SOFTMAX), (SCALE_NORM, NORM_SOFTMAX, NORM)
pairs = pytest.mark.parametrize("pair", PAIRS, ids=str)
fused = pytest.mark.parametrize("pair", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def assert_same_state(ours, plain, tolerance=0.0):
    """Also in the order of the names."""
    a, b = ours.state_dict(), plain.state_dict()
    assert list(a) == list(b)
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], rtol=tolerance, atol=tolerance, msg=name)


def wrap(plain, **options):
    if isinstance(plain, torch.nn.BatchNorm1d):
        return nn.BatchNorm1d.from_eager(plain)
    if isinstance(plain, PlainLinearScaleBatchNorm1d):
        parts = (plain.gemm, plain.scale, plain.bn)
        return nn.LinearScaleBatchNorm1d.from_eager(*parts, **options)
    parts = (plain.gemm, plain.bn, plain.scale)
    return nn.LinearBatchNorm1dScaleSoftmax.from_eager(*parts, **options)
