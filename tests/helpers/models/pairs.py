"""Every module of this package beside the plain one, each of the same sizes and in one mode."""

import torch
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)

from cutlass_fused import nn

M, N, K = 5, 3, 4


def forget_statistics(module):
    """In training under torch.func PyTorch refuses in-place updates of statistics from outside."""
    module.bn.running_mean = module.bn.running_var = module.bn.num_batches_tracked = None
    module.bn.track_running_stats = False
    return module


class PlainLinearTanh(torch.nn.Linear):
    def forward(self, x):
        return torch.tanh(super().forward(x))


# Ours and plain, in one mode.
PAIRS = {
    "Linear": (lambda: nn.Linear(K, N), lambda: torch.nn.Linear(K, N)),
    "LinearActivation": (
        lambda: nn.LinearActivation(K, N, "tanh"),
        lambda: PlainLinearTanh(K, N),
    ),
    "LinearScaleLeakyReLU": (
        lambda: nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1),
        lambda: PlainLinearScaleLeakyReLU(K, N, 2.0, 0.1),
    ),
    "LinearScaleBatchNorm1d": (
        lambda: nn.LinearScaleBatchNorm1d(K, N, (N,)).eval(),
        lambda: PlainLinearScaleBatchNorm1d(K, N, (N,)).eval(),
    ),
    "LinearBatchNorm1dScaleSoftmax": (
        lambda: nn.LinearBatchNorm1dScaleSoftmax(K, N).eval(),
        lambda: PlainLinearBatchNorm1dScaleSoftmax(K, N).eval(),
    ),
    "LinearScaleBatchNorm1d in training": (
        lambda: forget_statistics(nn.LinearScaleBatchNorm1d(K, N, (N,))),
        lambda: forget_statistics(PlainLinearScaleBatchNorm1d(K, N, (N,))),
    ),
    "LinearBatchNorm1dScaleSoftmax in training": (
        lambda: forget_statistics(nn.LinearBatchNorm1dScaleSoftmax(K, N)),
        lambda: forget_statistics(PlainLinearBatchNorm1dScaleSoftmax(K, N)),
    ),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(K).eval(), lambda: torch.nn.BatchNorm1d(K).eval()),
    "Softmax": (lambda: nn.Softmax(-1), lambda: torch.nn.Softmax(-1)),
}
