"""The three models in plain PyTorch, and what they are fused into.

Each has its product in `gemm`; they are named by their numbers among the problems of KernelBench.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .. import nn

MULTIPLIER, NEGATIVE_SLOPE = 2.0, 0.1


class PlainScaleLeakyReLU(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.activation = torch.nn.LeakyReLU(NEGATIVE_SLOPE)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.gemm(x) * MULTIPLIER)


class PlainScaleBatchNorm(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.scale = torch.nn.Parameter(torch.randn(out_features))
        self.bn = torch.nn.BatchNorm1d(out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.gemm(x) * self.scale)


class PlainBatchNormScaleSoftmax(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.bn = torch.nn.BatchNorm1d(out_features)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.softmax = torch.nn.Softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.softmax(self.scale * self.bn(self.gemm(x)))


def fuse_scale_leaky_relu(
    plain: PlainScaleLeakyReLU, precision: str | None
) -> nn.LinearScaleLeakyReLU:
    return nn.LinearScaleLeakyReLU.from_eager(
        plain.gemm, MULTIPLIER, plain.activation, precision=precision
    )


def fuse_scale_batch_norm(plain: PlainScaleBatchNorm, precision: str | None) -> torch.nn.Module:
    return nn.LinearScaleBatchNorm1d.from_eager(
        plain.gemm, plain.scale, plain.bn, precision=precision
    )


def fuse_batch_norm_scale_softmax(
    plain: PlainBatchNormScaleSoftmax, precision: str | None
) -> torch.nn.Module:
    return nn.LinearBatchNorm1dScaleSoftmax.from_eager(
        plain.gemm, plain.bn, plain.scale, precision=precision
    )


class Model(NamedTuple):
    formula: str
    mode: str  # "train" or "eval": in which it is mostly run
    # (in_features, out_features) -> the plain model, in float32 on the default device
    build_plain: Callable[[int, int], torch.nn.Module]
    # (plain, precision) -> the fused module; it shares the parameters and the running statistics
    fuse: Callable[[torch.nn.Module, str | None], torch.nn.Module]


MODELS = {
    "12": Model(
        f"leaky_relu((x @ weight.T + bias) * {MULTIPLIER}, {NEGATIVE_SLOPE})",
        "eval",
        PlainScaleLeakyReLU,
        fuse_scale_leaky_relu,
    ),
    "33": Model(
        "batch_norm((x @ weight.T + bias) * scale)",
        "train",
        PlainScaleBatchNorm,
        fuse_scale_batch_norm,
    ),
    "84": Model(
        "softmax(scale * batch_norm(x @ weight.T + bias))",
        "train",
        PlainBatchNormScaleSoftmax,
        fuse_batch_norm_scale_softmax,
    ),
}


def share_product(plain: torch.nn.Module) -> torch.nn.Module:
    """A copy with running statistics of its own, and with the `gemm` of the original: several
    variants run side by side, and their weights need not be in memory several times."""
    gemm = getattr(plain, "gemm", None)
    return copy.deepcopy(plain, {id(gemm): gemm})
