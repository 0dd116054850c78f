"""The cuBLAS handle of PyTorch, for what is left behind in it."""

import ctypes
import pathlib

import torch


class Handle:
    """PyTorch's, with its modes, by the same library."""

    def __init__(self):
        self.cublas = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cuda.so"))
        self.handle = ctypes.c_void_p(torch.cuda.current_blas_handle())

    def get(self, mode):
        value = ctypes.c_int(-1)
        assert getattr(self.cublas, f"cublasGet{mode}")(self.handle, ctypes.byref(value)) == 0
        return value.value

    def set(self, mode, value):
        assert getattr(self.cublas, f"cublasSet{mode}")(self.handle, value) == 0
