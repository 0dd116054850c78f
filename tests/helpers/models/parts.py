"""Modules that from_eager builds of given parts."""

import torch

from cutlass_fused import nn

IN, OUT = 12, 20
BUILD = {
    "Linear": lambda linear, bn, scale: nn.Linear.from_eager(linear),
    "LinearScaleLeakyReLU": lambda linear, bn, scale: nn.LinearScaleLeakyReLU.from_eager(
        linear, 2.0, 0.1
    ),
    "LinearScaleBatchNorm1d": lambda linear, bn, scale: nn.LinearScaleBatchNorm1d.from_eager(
        linear, scale, bn
    ),
    "LinearBatchNorm1dScaleSoftmax": (
        lambda linear, bn, scale: nn.LinearBatchNorm1dScaleSoftmax.from_eager(linear, bn, scale)
    ),
    "BatchNorm1d": lambda linear, bn, scale: nn.BatchNorm1d.from_eager(bn),
}


# Those that hold the parts themselves.
FUSED = ("LinearScaleLeakyReLU", "LinearScaleBatchNorm1d", "LinearBatchNorm1dScaleSoftmax")


def build(kind, linear=None, bn=None):
    scale = torch.nn.Parameter(torch.rand(OUT) + 0.5)
    return BUILD[kind](linear or torch.nn.Linear(IN, OUT), bn or torch.nn.BatchNorm1d(OUT), scale)
