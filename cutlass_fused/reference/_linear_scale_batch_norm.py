"""linear_scale_batch_norm_train. Its sibling for inference is an epilogue.

The arguments, the numerics and the errors stand at the head of this package.
"""

import torch
from torch import Tensor

from ..checks import (
    check_batch,
    check_centre,
    check_linear_batch_norm,
    check_rows,
    check_updated,
    find_out_dtype,
)
from ..epilogues.linear_scale_batch_norm_inference import normalize
from ._arithmetic import product, round_kept, round_to
from ._batch_norm import compute_rstd, compute_statistics, update_running_statistics


def linear_scale_batch_norm_train(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    num_batches_tracked: Tensor | None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
    keep_z: bool = False,
    weight_split: Tensor | None = None,
    centre: Tensor | None = None,
    out: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y = (v - mean) * rstd * gamma + beta with v = z * scale, for x of shape (M, K), M != 1.

    mean and rstd = 1 / sqrt(var + eps) are those of v over the batch, with the biased variance. The
    running statistics are updated as `update_running_statistics` says.

    Returns y and v of shape (M, N) and of out_dtype, and mean and rstd of shape (N,), float32
    (float64 for float64 inputs). Only a gradient reads v: without `keep_z` it has the shape (0, N).
    With a `centre` (N,), of the dtype of mean and written to, it is returned less a shift of each
    column, whichever the kernel chose, and centre becomes the mean of that: rounded to 16 bits, v
    itself may be off by many times its deviation.
    """
    op = "linear_scale_batch_norm"
    check_batch(op, x, "(M, K)")
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_updated(op, num_batches_tracked, momentum, running_mean, running_var, x)
    check_centre(op, centre, x, weight.shape[0])
    check_rows(op, x)

    v = product(x, weight, bias)
    if scale is not None:
        v = v * scale
    batch = compute_statistics(v)
    update_running_statistics(batch, running_mean, running_var, num_batches_tracked, momentum)
    y = normalize(v, batch.mean, batch.variance, gamma, beta, eps)
    dtype = out_dtype or x.dtype
    kept = round_kept(v, keep_z, dtype, batch.mean, centre)
    return round_to(y, dtype), kept, batch.mean, compute_rstd(batch.variance, eps)
