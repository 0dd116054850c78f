"""Whether a fused call is expected to take no longer than what stood there.

The constants come from measured tables of bench/README.md. On a CPU nothing is estimated: there
the functions run their definitions.
"""

import functools
import math

import torch
from torch import Tensor

from .._library import load_error, read_build_info
from ..precision import resolve_precision

# Elements of x times columns, M * N * K. In training the host decides how long a small step takes.
# "Steps of training", under "tf32": 4096 x 1024 x 1024 with a tail is 1.08 times as fast as
# PyTorch, and whole models of smaller layers are down to 0.87.
_LEAST_TRAINED_TF32 = 4096 * 1024 * 1024
# There, in 16 bits: layers of 2048 x 1024 x 479 (DLRM) are 1.03 times as fast, those of 32 rows
# (PointNet) 0.96, and of width 64 and less (PINN) 0.71.
_LEAST_TRAINED_16 = 2048 * 1024 * 479
# A product alone under "tf32" is 1.00 to 1.27 times as fast in the mean, and slower in some shapes
# ("fp32 products"): only large ones gain more than a call of ours costs the host.
_LEAST_BARE_TF32 = 4096 * 1024 * 1024


# Columns and sums. In 16 bits TMA takes rows of a multiple of eight numbers; others are copied
# first, which takes longer than the product of a narrower layer. "Real models": with nine layers of
# width 20 a PINN is 0.4 to 0.6 times as fast at 4096 and 16384 rows; with rows of 479 the top of
# DLRM is 1.5 to 2.1 times.
_LEAST_COPIED_16 = 64


def find_loss(x: Tensor, weight: Tensor, dtype: torch.dtype, precision, is_bare, is_trained):
    """Why PyTorch's ops are expected to take less time; None where ours are not slower.

    dtype: of the product. is_bare: nothing stands behind it. is_trained: a gradient is recorded.
    """
    if not x.is_cuda:
        return None
    if (refusal := _find_refusal(x.device.index)) is not None:
        return refusal
    if dtype == torch.float64:
        return "there are no kernels for float64"
    count = math.prod(x.shape) * weight.shape[0]
    if dtype != torch.float32:
        if is_bare:
            return "in 16 bits a product alone takes as long as cuBLAS's"
        sides = weight.shape[0], weight.shape[1]
        if min(sides) < _LEAST_COPIED_16 and any(side % 8 for side in sides):
            return "in 16 bits narrow rows that TMA does not take are copied first"
        if is_trained and count < _LEAST_TRAINED_16:
            return "in 16 bits a small step of training takes longer by the host's time"
        return None
    if resolve_precision(precision, "fuse", dtype) == "ieee":
        return None
    if is_bare and count < _LEAST_BARE_TF32:
        return "under tf32 a small product alone takes as long as cuBLAS's"
    if is_trained and count < _LEAST_TRAINED_TF32:
        return "under tf32 a small step of training takes longer by the host's time"
    return None


@functools.cache
def _find_refusal(device: int) -> str | None:
    from ..config import find_refusal

    if (error := load_error()) is not None:
        return f"the library is not loaded: {error}"
    return find_refusal(torch.cuda.get_device_capability(device), read_build_info())
