"""By what a weight is known to be as it was, on the host."""

from torch import Tensor


def describe(weight: Tensor) -> tuple:
    """Changes with every write that PyTorch counts, and with the memory."""
    storage = weight.untyped_storage()._cdata
    return weight._version, weight.data_ptr(), storage, weight.shape, weight.stride(), weight.dtype
