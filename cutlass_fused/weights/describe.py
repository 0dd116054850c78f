"""By what a weight is known to be as it was, on the host."""

import torch
from torch import Tensor

_PLAIN = (Tensor, torch.nn.Parameter)


def is_plain(weight: Tensor) -> bool:
    """Whether it has memory of its own, as a DTensor has not, or a sparse tensor."""
    return type(weight) in _PLAIN and weight.layout is torch.strided


def describe(weight: Tensor) -> tuple:
    """Changes with every write that PyTorch counts, and with the memory."""
    storage = weight.untyped_storage()._cdata
    return weight._version, weight.data_ptr(), storage, weight.shape, weight.stride(), weight.dtype
