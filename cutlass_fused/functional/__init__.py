"""Functions over the raw ops: PyTorch's conventions for precision, dtypes, autocast, gradients.

The gradients are torch.autograd.Functions, entered only when a gradient can be asked for; otherwise
a call is the raw op alone. They can be differentiated again, to any order. In forward mode a call
is a product and PyTorch's ops. So it is in training within torch.func.vmap, which calls any other
op once for each slice, with gradients too.

An epilogue (cutlass_fused.epilogues) or an op along rows (cutlass_fused.row_ops) without a file of
its own here has the function that is derived from its description. linear_epilogue lies with what
it takes, in cutlass_fused.programs.
"""

from .. import sharding
from ..epilogues import EPILOGUES
from ..programs.call import linear_epilogue
from ..row_ops import ROW_OPS
from . import _derived, _flops
from ._batch_norm import batch_norm
from ._derived import linear
from ._linear_batch_norm_scale_softmax import linear_batch_norm_scale_softmax
from ._linear_scale_batch_norm import linear_scale_batch_norm
from ._linear_scale_leaky_relu import linear_scale_leaky_relu
from ._softmax import softmax

__all__ = [
    "batch_norm",
    "linear",
    "linear_batch_norm_scale_softmax",
    "linear_epilogue",
    "linear_scale_batch_norm",
    "linear_scale_leaky_relu",
    "softmax",
]

for _epilogue in EPILOGUES.values():
    if _epilogue.function not in globals():
        globals()[_epilogue.function] = _derived.derive(_epilogue)
        __all__.append(_epilogue.function)

for _row_op in ROW_OPS.values():
    if _row_op.function not in globals():
        globals()[_row_op.function] = _derived.derive_row_op(_row_op)
        __all__.append(_row_op.function)

_flops.register_when_imported()
sharding.register_when_imported()
