"""y = batch_norm((x @ weight.T + bias) * scale), problem 33 of KernelBench.

Model is the problem in plain PyTorch, ModelNew its replacement: the same parameters and statistics
under the same names, drawn in the same order, and fp32 accuracy whatever PyTorch's own setting is.
Both are in training as they are built: they normalize by the statistics of the batch, and update
the running ones.
"""

import torch
from torch import Tensor

from cutlass_fused import nn

BATCH, IN_FEATURES, OUT_FEATURES = 1024, 8192, 8192


class Model(torch.nn.Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale_shape: tuple[int, ...],
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.scale = torch.nn.Parameter(torch.randn(scale_shape))
        self.bn = torch.nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.gemm(x) * self.scale)


class ModelNew(nn.LinearScaleBatchNorm1d):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale_shape: tuple[int, ...],
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        super().__init__(in_features, out_features, scale_shape, eps, momentum, precision="ieee")


def get_inputs() -> list[Tensor]:
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs() -> list:
    return [IN_FEATURES, OUT_FEATURES, (OUT_FEATURES,)]
