"""linear_batch_norm_scale_softmax_inference and linear_batch_norm_scale_softmax_train.

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
from ..row_ops.softmax import softmax_rows
from ._arithmetic import product, round_kept, round_to
from ._batch_norm import compute_rstd, compute_statistics, update_running_statistics


def linear_batch_norm_scale_softmax_inference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
    out: str | None = None,
) -> Tensor:
    """y = softmax(scale * b, dim=1) with
    b = (z - running_mean) / sqrt(running_var + eps) * gamma + beta, for x of shape (M, K).
    """
    op = "linear_batch_norm_scale_softmax"
    check_batch(op, x, "(M, K)")
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    out_dtype = find_out_dtype(op, x, out_dtype, out)

    b = normalize(product(x, weight, bias), running_mean, running_var, gamma, beta, eps)
    y = softmax_rows(b if scale is None else b * scale)
    return round_to(y, out_dtype or x.dtype)


def linear_batch_norm_scale_softmax_train(
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
    """y = softmax(scale * b, dim=1) with b = (z - mean) * rstd * gamma + beta, for x of shape
    (M, K), M != 1.

    mean and rstd = 1 / sqrt(var + eps) are those of z over the batch, with the biased variance. The
    running statistics are updated as `update_running_statistics` says.

    Returns y and z of shape (M, N) and of out_dtype, and mean and rstd of shape (N,), float32
    (float64 for float64 inputs). Only a gradient reads z: without `keep_z` it has the shape (0, N).
    With a `centre` z is returned less a shift of each column, as by linear_scale_batch_norm_train.
    """
    op = "linear_batch_norm_scale_softmax"
    check_batch(op, x, "(M, K)")
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_updated(op, num_batches_tracked, momentum, running_mean, running_var, x)
    check_centre(op, centre, x, weight.shape[0])
    check_rows(op, x)

    z = product(x, weight, bias)
    batch = compute_statistics(z)
    update_running_statistics(batch, running_mean, running_var, num_batches_tracked, momentum)
    b = normalize(z, batch.mean, batch.variance, gamma, beta, eps)
    y = softmax_rows(b if scale is None else b * scale)
    dtype = out_dtype or x.dtype
    kept = round_kept(z, keep_z, dtype, batch.mean, centre)
    return round_to(y, dtype), kept, batch.mean, compute_rstd(batch.variance, eps)
