"""Modules with the parameters of the plain ones: state dicts are interchangeable, both ways.

Built under the same seed, a module's parameters equal the plain model's, bit for bit. A part with
hooks, and one that is replaced by a module with a forward of its own, is called as it is.
torch.fx takes the modules as leaves.
torch.func.vmap does with a module what it does with cutlass_fused.functional.

A file of this folder that names its module in __all__ is found by itself.
"""

import importlib
import pkgutil

from ._state_dict import map_state_dict
from .batch_norm import BatchNorm1d
from .linear import Linear
from .linear_activation import LinearActivation
from .linear_batch_norm_scale_softmax import LinearBatchNorm1dScaleSoftmax
from .linear_scale_batch_norm import LinearScaleBatchNorm1d
from .linear_scale_leaky_relu import LinearScaleLeakyReLU
from .softmax import Softmax

__all__ = [
    "BatchNorm1d",
    "Linear",
    "LinearActivation",
    "LinearBatchNorm1dScaleSoftmax",
    "LinearScaleBatchNorm1d",
    "LinearScaleLeakyReLU",
    "Softmax",
    "map_state_dict",
]

for _file in pkgutil.iter_modules(__path__):
    if not _file.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_file.name}")
        for _name in getattr(_module, "__all__", ()):
            globals()[_name] = getattr(_module, _name)
            __all__.append(_name)
