"""Why a product is left to PyTorch."""

import torch
from torch import Tensor

from ..precision import resolve_precision

FLOAT32 = torch.float32

OFF = "the switch is off"
OTHER_DTYPE = "not float32"
ODD = "mixed dtypes or devices, or shapes that do not fit"
EMPTY = "no product: M, N or K is 0"
ALPHA = "no product: alpha is 0"
SHORT = "cuBLAS is faster: K is at most 32"
LONG = "cuBLAS is faster: K is long, and M x N is small"
BATCHES = "batches: no kernel for them in this library"

# Up to here the kernels of this package add up in plain fp32 on CUDA cores, as cuBLAS does, which
# takes a quarter of their time: bench/results/h100/products.json, "wgrad" with M = 16.
_SHORT_K = 32
# A small result gives most of a GPU nothing to do, unless K is cut over it, as cuBLAS does. In the
# same file "wgrad" loses or is level wherever both hold, and hardly elsewhere but for a short K.
# "fwd" of few rows wins: there K is cut.
_LONG_K, _MOST_OUTPUTS_OF_K, _FEW_ROWS = 2048, 16, 64


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
    if k <= _SHORT_K:
        return SHORT if keeps_to(word) else None
    if k >= _LONG_K and m * n <= _MOST_OUTPUTS_OF_K * k and min(m, n) >= _FEW_ROWS:
        return LONG if keeps_to(word) else None
    return None


def keeps_to(word: str) -> bool:
    """Whether PyTorch's own products are as exact as this word promises."""
    return word == "tf32" or resolve_precision(None, "fp32_matmul") != "tf32"


def is_like(a: Tensor, b: Tensor) -> bool:
    """Whether b has the dtype and the device of a, which is of float32 and on a CPU or a GPU."""
    return b.dtype is FLOAT32 and b.get_device() == a.get_device()
