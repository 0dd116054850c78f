"""bmm."""

import torch
from torch import Tensor

from ..checks import check_batches
from ._arithmetic import compute_dtype, round_to


def bmm(x: Tensor, weight: Tensor, precision: str = "ieee") -> Tensor:
    """y[b] = x[b] @ weight[b].T, of x (B, M, K) and weight (B, N, K): float16, bfloat16 or float32
    (here also float64), any strides, also 0 between the matrices of a batch. Sums of 16-bit numbers
    are of fp32, rounded once; precision concerns float32. Returns (B, M, N) of x's dtype,
    contiguous.
    """
    check_batches("bmm", x, weight, precision)
    dtype = compute_dtype(x)
    return round_to(torch.bmm(x.to(dtype), weight.to(dtype).transpose(1, 2)), x.dtype)
