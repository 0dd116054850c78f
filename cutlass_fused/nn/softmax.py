"""Softmax."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ..checks import KERNEL_DTYPES
from ._parts import call_as_leaf, check_part
from ._script import refuse_script


class Softmax(torch.nn.Softmax):
    """y = exp(x - max) / sum(exp(x - max)) along `dim`: torch.nn.Softmax with its own kernel.

    Along the last dimension of float16, bfloat16 and float32 tensors it is
    cutlass_fused.functional.softmax, which also tells shapes, numerics and errors; elsewhere it is
    PyTorch's own.

    Args:
        dim: as of torch.nn.Softmax.
    """

    @classmethod
    def from_eager(cls, softmax: torch.nn.Softmax) -> "Softmax":
        """A module along the same dimension, in the same training mode.

        Raises TypeError where `softmax` is no torch.nn.Softmax or has hooks or another forward.
        """
        check_part("Softmax", "softmax", softmax, torch.nn.Softmax)
        return cls(softmax.dim).train(softmax.training)

    __prepare_scriptable__ = refuse_script

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return call_as_leaf(self, input)
        if isinstance(input, Tensor):
            rank = input.dim()
            if rank == 0 or self.dim not in (-1, rank - 1) or input.dtype not in KERNEL_DTYPES:
                return super().forward(input)
        return functional.softmax(input)

    def _get_name(self) -> str:
        return "cutlass_fused.Softmax"
