"""split_weight."""

import torch
from torch import Tensor

from ..checks import check_weight


def split_weight(weight: Tensor, precision: str = "ieee") -> Tensor:
    """What the products of float32 matrices on a GPU read in place of weight: bytes, to be handed
    to them as `weight_split`, with the same weight and precision.

    Each row is weight[n] = (hi[n] + 2^-11 * lo[n]) * h[n]^2 with fp16 numbers hi and lo and a power
    of two h[n]; "tf32" has no lo. Empty where nothing is split: on the CPU, and up to K = 32.
    """
    check_weight("split_weight", weight, precision)
    return torch.empty(0, dtype=torch.uint8, device=weight.device)
