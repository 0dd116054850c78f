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

# Elements of x times columns, M * N * K. A small step of training takes as long as its host does:
# 0.97 of eager PyTorch's time in the mean over 96 steps of layers and models with a tail of
# elements, or a batch norm, of 16 to 4096 rows in 16 bits and tf32, and 1.05 where all was left to
# PyTorch; single ones are off by a factor of two on a busy host. The GPU takes 0.62 of eager's time
# in the mean over 88 steps of 1024 rows, and at most 0.94; with programs of rows, whose gradients
# are in C++, 0.56 and at most 0.84, and the host as long as eager's (H200). With gradients in
# Python these took the host 1.8 times as long in ten steps.
_LEAST_TRAINED = 2048 * 1024 * 479
# A product alone under "tf32" is 1.00 to 1.27 times as fast in the mean, and slower in some shapes
# ("fp32 products"): only large ones gain more than a call of ours costs the host.
_LEAST_BARE_TF32 = 4096 * 1024 * 1024
# Columns and sums. In 16 bits TMA takes rows of a multiple of eight numbers; others are copied
# first, which takes longer than the product of a narrower layer. "Real models": with nine layers of
# width 20 a PINN is 0.4 to 0.6 times as fast at 4096 and 16384 rows; with rows of 479 the top of
# DLRM is 1.5 to 2.1 times. Under tf32 cuBLAS may take kernels of fp32, as it does for 16 x 768 x
# 512 (9.5e-8 off for 2.1e-4): of narrow rows that its kernels of TF32 do not read by 16 bytes small
# steps stay with it, for the errors of their gradients.
_LEAST_COPIED = 64
_WHOLE_16, _WHOLE_TF32 = 8, 4


def find_loss(
    x: Tensor,
    weight: Tensor,
    dtype: torch.dtype,
    precision: str | None,
    is_bare: bool,
    is_trained: bool,
    is_of_rows: bool,
) -> str | None:
    """Why PyTorch's ops are expected to take less time; None where ours are not slower.

    dtype: of the product. is_bare: nothing stands behind it, nor is the gradient of a bias ours.
    is_trained: a gradient is recorded. is_of_rows: what stands behind it computes along rows, is no
    batch norm, and has its gradient in Python.
    """
    if not x.is_cuda:
        return None
    if (refusal := _find_refusal(x.device.index)) is not None:
        return refusal
    if dtype == torch.float64:
        return "there are no kernels for float64"
    count = math.prod(x.shape) * weight.shape[0]
    is_small_step = is_trained and is_of_rows and count < _LEAST_TRAINED
    if dtype != torch.float32:
        if is_bare:
            return "in 16 bits a product alone takes as long as cuBLAS's"
        if _is_odd(weight, _WHOLE_16):
            return "in 16 bits narrow rows that TMA does not take are copied first"
        if is_small_step:
            return "in 16 bits a small step of training takes longer by the host's time"
        return None
    if resolve_precision(precision, "fuse", dtype) == "ieee":
        return None
    if is_bare and count < _LEAST_BARE_TF32:
        return "under tf32 a small product alone takes as long as cuBLAS's"
    if is_small_step:
        return "under tf32 a small step of training takes longer by the host's time"
    if is_trained and count < _LEAST_TRAINED and _is_odd(weight, _WHOLE_TF32):
        return "under tf32 cuBLAS may multiply narrow rows of no whole 16 bytes in fp32"
    return None


def _is_odd(weight: Tensor, whole: int) -> bool:
    """Whether the layer is a narrow one whose rows are no multiples of so many numbers."""
    sides = weight.shape[0], weight.shape[1]
    return min(sides) < _LEAST_COPIED and any(side % whole for side in sides)


@functools.cache
def _find_refusal(device: int) -> str | None:
    from ..config import find_refusal

    if (error := load_error()) is not None:
        return f"the library is not loaded: {error}"
    return find_refusal(torch.cuda.get_device_capability(device), read_build_info())
