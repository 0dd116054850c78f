"""One plain PyTorch definition per op, with the argument list of its schema.

Each is the documentation of its op, its CPU kernel, its fake (shapes and dtypes while tracing) and
the truth that tests compare the GPU kernels with.

In all of them K is the length of a row of `x`, N the number of rows of `weight`, and

    z = x @ weight.T + bias

The definitions of the ops with an epilogue are written from cutlass_fused.epilogues, those of the
ops along rows, such as softmax, from cutlass_fused.row_ops.

Common arguments:
    x: (..., K), in front of a batch norm (M, K); float16, bfloat16 or float32 (here also float64);
        any strides. Where any number of leading dimensions is allowed, also none.
    weight: (N, K), dtype of x; any strides. Of ops with an epilogue alone (not those of training,
        nor those with a softmax) it may also be float32 beside x of 16 bits.
    bias: (N,), dtype of x or float32, any stride; None is 0.
    scale: one element of shape () or (1,), or (N,); dtype of x or float32; None is 1.
    running_mean, running_var: (N,), dtype of x or float32, any stride. Training updates them in
        place, each only if it is given; there the stride must not be 0.
    num_batches_tracked: one int64 number, which training counts up if it is given.
    gamma, beta: (N,), dtype of x or float32, any stride; None is 1 and 0.
    momentum: the weight of a new batch in the running statistics; None is 1 / num_batches_tracked.
    eps: a positive number, added to the variance.
    precision: "ieee" or "tf32": what the GPU kernels give an fp32 weight. No other device and no
        other dtype knows a difference.
    out_dtype: dtype of x or float32; None is the dtype of x.
    out: the same by name, as "float32", where out_dtype is None: in an AOTInductor package of torch
        2.11 a dtype arrives as another one.
    weight_split: what split_weight made of weight for this precision, or None. It changes no digit,
        but saves the GPU that work. Beside it a weight of which all strides are 0 is there for its
        shape alone; small products, and rows that are then computed in plain fp32, read the split.
The stand-alone batch norms and the ops along rows take N from x: (M, N) and (..., N).
Returns (..., N), contiguous, of out_dtype; what training returns besides is said with its ops.
Numerics: products, statistics and the whole tail in fp32 (float64 for float64 inputs), rounded
once, at the end. An empty sum (K = 0) is 0; M = 0 and N = 0 give an empty output.
Raises RuntimeError for tensors or options other than these, before anything is written.
"""

from ..epilogues import EPILOGUES
from ..epilogues.linear_scale_leaky_relu import scale_leaky_relu
from ..row_ops import ROW_OPS
from . import _epilogues, _row_ops
from ._activation_gradients import leaky_relu_gradient, softmax_gradient
from ._addmm import addmm, addmm_out, baddbmm, baddbmm_out
from ._arithmetic import compute_dtype
from ._batch_norm import batch_norm_inference, batch_norm_train, compute_rstd
from ._batch_norm_gradient import batch_norm_gradient, batch_norm_scale_gradient
from ._bmm import bmm
from ._linear_batch_norm_scale_softmax import (
    linear_batch_norm_scale_softmax_inference,
    linear_batch_norm_scale_softmax_train,
)
from ._linear_out import linear_out
from ._linear_scale_batch_norm import linear_scale_batch_norm_train
from ._scale_gradient import SHARE_OF_SUM, scale_gradient, unscale_columns
from ._split_weight import split_weight

__all__ = [
    "SHARE_OF_SUM",
    "addmm",
    "addmm_out",
    "baddbmm",
    "baddbmm_out",
    "batch_norm_gradient",
    "batch_norm_scale_gradient",
    "batch_norm_inference",
    "batch_norm_train",
    "bmm",
    "compute_dtype",
    "compute_rstd",
    "leaky_relu_gradient",
    "linear_batch_norm_scale_softmax_inference",
    "linear_batch_norm_scale_softmax_train",
    "linear_out",
    "linear_scale_batch_norm_train",
    "scale_gradient",
    "scale_leaky_relu",
    "softmax_gradient",
    "split_weight",
    "unscale_columns",
]
__all__ += [*EPILOGUES, *ROW_OPS]

globals().update({op: getattr(_epilogues, op) for op in EPILOGUES})
globals().update({op: getattr(_row_ops, op) for op in ROW_OPS})
