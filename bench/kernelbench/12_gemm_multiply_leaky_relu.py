"""y = leaky_relu((x @ weight.T + bias) * multiplier, negative_slope), problem 12 of KernelBench.

Model is the problem in plain PyTorch, ModelNew its replacement: the same parameters under the same
names, drawn in the same order, and fp32 accuracy whatever PyTorch's own setting is.
"""

import torch
from torch import Tensor

from cutlass_fused import nn

BATCH, IN_FEATURES, OUT_FEATURES = 1024, 8192, 8192
MULTIPLIER, NEGATIVE_SLOPE = 2.0, 0.1


class Model(torch.nn.Module):
    def __init__(
        self, in_features: int, out_features: int, multiplier: float, negative_slope: float
    ) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.multiplier = multiplier
        self.activation = torch.nn.LeakyReLU(negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.gemm(x) * self.multiplier)


class ModelNew(nn.LinearScaleLeakyReLU):
    def __init__(
        self, in_features: int, out_features: int, multiplier: float, negative_slope: float
    ) -> None:
        super().__init__(in_features, out_features, multiplier, negative_slope, precision="ieee")


def get_inputs() -> list[Tensor]:
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs() -> list:
    return [IN_FEATURES, OUT_FEATURES, MULTIPLIER, NEGATIVE_SLOPE]
