"""Products that cuBLAS computes under our ops too, and PyTorch in the same precision.

PyTorch's own calls of cuBLAS take less of the host's time, and add a bias within the product. The
library of the ops knows which they are (src/launch/cublas/plain_product.hpp).
"""

import contextlib
import ctypes
import functools
import threading

import torch
from torch import Tensor

from .. import _library


class _Product(ctypes.Structure):
    """x (M, K) @ weight.T, `batch` times, as plain_product.hpp has it."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("x_strides", ctypes.c_int64 * 3),
        ("weight_strides", ctypes.c_int64 * 3),
        ("device", ctypes.c_int32),
        ("in_tf32", ctypes.c_bool),
    )


class _Thread(threading.local):
    never = False


_thread = _Thread()


@contextlib.contextmanager
def never():
    """Within, in this thread, no product is left to PyTorch. For graphs that are traced, where
    tensors have no memory, and for results that lie over what is read."""
    before, _thread.never = _thread.never, True
    try:
        yield
    finally:
        _thread.never = before


@functools.cache
def find_function():
    """Whether cuBLAS computes a _Product, as a function of C; None where there is no library."""
    try:
        function = ctypes.CDLL(str(_library.library_path())).cutlass_fused_is_by_cublas
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = ctypes.c_bool, (ctypes.POINTER(_Product),)
    return function


def is_by_pytorch(word: str, a: Tensor, b: Tensor) -> bool:
    """Of a (M, K) @ b (K, N), of float32 and not empty, with or without a bias (N,); or of
    batches of them."""
    if _thread.never or not a.is_cuda or (function := find_function()) is None:
        return False
    in_tf32 = word == "tf32"
    if in_tf32 != (torch.backends.cuda.matmul.fp32_precision == "tf32"):
        return False
    batch = a.shape[0] if a.dim() == 3 else 1
    along_batch = (a.stride(0), b.stride(0)) if a.dim() == 3 else (0, 0)
    product = _Product(
        *(batch, a.shape[-2], b.shape[-1], a.shape[-1], a.data_ptr(), b.data_ptr()),
        (along_batch[0], a.stride(-2), a.stride(-1)),
        (along_batch[1], b.stride(-1), b.stride(-2)),
        *(a.get_device(), in_tf32),
    )
    return function(ctypes.byref(product))
