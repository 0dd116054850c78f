"""y = softmax(scale * batch_norm(x @ weight.T + bias), dim=1), problem 84 of KernelBench.

Model is the problem in plain PyTorch, ModelNew its replacement: the same parameters and statistics
under the same names, drawn in the same order, and fp32 accuracy whatever PyTorch's own setting is.
Both are in training as they are built: they normalize by the statistics of the batch, and update
the running ones.
"""

import torch
from torch import Tensor

from cutlass_fused import nn

BATCH, IN_FEATURES, OUT_FEATURES = 1024, 8192, 8192
BN_EPS, BN_MOMENTUM = 1e-5, 0.1
SCALE_SHAPE = (1,)


class Model(torch.nn.Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        scale_shape: tuple[int, ...] = (1,),
    ) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.bn = torch.nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.scale = torch.nn.Parameter(torch.ones(scale_shape))
        self.softmax = torch.nn.Softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.softmax(self.scale * self.bn(self.gemm(x)))


class ModelNew(nn.LinearBatchNorm1dScaleSoftmax):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        scale_shape: tuple[int, ...] = (1,),
    ) -> None:
        super().__init__(
            in_features, out_features, bn_eps, bn_momentum, scale_shape, precision="ieee"
        )


def get_inputs() -> list[Tensor]:
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs() -> list:
    return [IN_FEATURES, OUT_FEATURES, BN_EPS, BN_MOMENTUM, SCALE_SHAPE]
