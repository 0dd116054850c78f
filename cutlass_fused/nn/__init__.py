"""Modules with the parameters of the plain ones: state dicts are interchangeable, both ways.

Built under the same seed, a module's parameters equal the plain model's, bit for bit. A part with
hooks, and one that is replaced by a module with a forward of its own, is called as it is.
torch.fx takes the modules as leaves.
torch.func.vmap does with a module what it does with cutlass_fused.functional.
"""

from ._state_dict import map_state_dict
from .batch_norm import BatchNorm1d
from .linear import Linear
from .linear_batch_norm_scale_softmax import LinearBatchNorm1dScaleSoftmax
from .linear_scale_batch_norm import LinearScaleBatchNorm1d
from .linear_scale_leaky_relu import LinearScaleLeakyReLU
from .softmax import Softmax

__all__ = [
    "BatchNorm1d",
    "Linear",
    "LinearBatchNorm1dScaleSoftmax",
    "LinearScaleBatchNorm1d",
    "LinearScaleLeakyReLU",
    "Softmax",
    "map_state_dict",
]
