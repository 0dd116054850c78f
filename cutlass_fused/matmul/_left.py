"""Why a product is left to PyTorch."""

import torch
from torch import Tensor

from ..precision import resolve_precision

FLOAT32 = torch.float32

OFF = "the switch is off"
OTHER_DTYPE = "not float32"
UNKNOWN = "M, N or K is not known before the graph runs"
ODD = "mixed dtypes or devices, or shapes that do not fit"
SCALES = "alpha or beta is complex, or not known before the graph runs"
EMPTY = "no product: M, N or K is 0"
ALPHA = "no product: alpha is 0"
CUBLAS = "cuBLAS takes less time, and PyTorch calls it in the same precision"
SHORT = "K is at most 32: PyTorch's sums are as exact, and take less time on the host"

# Up to here sums are those of cuBLAS, or of CUDA cores as there: an op of ours would only take more
# of the host's time. For what else cuBLAS computes faster see _by_pytorch.py.
SHORT_K = 32


def find_reason(word: str, a: Tensor, b: Tensor) -> str | None:
    """Why a (M, K) @ b (K, N), a of float32, is left to PyTorch; None if it is served."""
    if a.dim() != 2 or b.dim() != 2 or not is_like(a, b):
        return ODD
    m, k = a.shape
    rows, n = b.shape
    return ODD if rows != k else find_reason_of_sizes(word, m, n, k)


def find_reason_of_sizes(word: str, m: int, n: int, k: int) -> str | None:
    """The same for operands that fit."""
    if not m or not n or not k:
        return EMPTY
    if k <= SHORT_K:
        return SHORT if keeps_to(word) else None
    return None


def keeps_to(word: str) -> bool:
    """Whether PyTorch's own products are as exact as this word promises."""
    return word == "tf32" or resolve_precision(None, "fp32_matmul") != "tf32"


def is_like(a: Tensor, b: Tensor) -> bool:
    """Whether b has the dtype and the device of a, which is of float32 and on a CPU or a GPU."""
    return b.dtype is FLOAT32 and b.get_device() == a.get_device()
