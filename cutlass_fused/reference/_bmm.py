"""bmm."""

import torch
from torch import Tensor

from ..checks import check_batches


def bmm(x: Tensor, weight: Tensor, precision: str = "ieee") -> Tensor:
    """y[b] = x[b] @ weight[b].T, of x (B, M, K) and weight (B, N, K): float32 (here also float64),
    any strides, also 0 between the matrices of a batch. Returns (B, M, N), contiguous.
    """
    check_batches("bmm", x, weight, precision)
    return torch.bmm(x, weight.transpose(1, 2))
