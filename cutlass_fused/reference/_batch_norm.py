"""batch_norm_inference and batch_norm_train, and the statistics that all batch norms share.

The arguments, the numerics and the errors stand at the head of this package.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_batch, check_batch_norm, check_rows, check_updated
from ..epilogues.linear_scale_batch_norm_inference import normalize
from ._arithmetic import at_least_one, compute_dtype, round_to


def batch_norm_inference(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta, for x of shape (M, N).

    Returns y of shape (M, N) and of the dtype of x.
    """
    op = "batch_norm"
    check_batch(op, x, "(M, N)")
    check_batch_norm(op, x, x.shape[1], running_mean, running_var, gamma, beta)

    y = normalize(x.to(compute_dtype(x)), running_mean, running_var, gamma, beta, eps)
    return round_to(y, x.dtype)


def batch_norm_train(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    num_batches_tracked: Tensor | None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """y = (x - mean) * rstd * gamma + beta, for x of shape (M, N), M != 1.

    mean and rstd = 1 / sqrt(var + eps) are those of the batch, with the biased variance. The
    running statistics are updated as `update_running_statistics` says.

    Returns y of shape (M, N) and of the dtype of x, and mean and rstd of shape (N,), float32
    (float64 for float64 inputs).
    """
    op = "batch_norm"
    check_batch(op, x, "(M, N)")
    check_batch_norm(op, x, x.shape[1], running_mean, running_var, gamma, beta)
    check_updated(op, num_batches_tracked, momentum, running_mean, running_var, x)
    check_rows(op, x)

    z = x.to(compute_dtype(x))
    batch = compute_statistics(z)
    update_running_statistics(batch, running_mean, running_var, num_batches_tracked, momentum)
    y = normalize(z, batch.mean, batch.variance, gamma, beta, eps)
    return round_to(y, x.dtype), batch.mean, compute_rstd(batch.variance, eps)


class Statistics(NamedTuple):
    """Mean and biased variance, each (N,), of the columns of a batch of `count` rows."""

    mean: Tensor
    variance: Tensor
    count: int


def compute_statistics(z: Tensor) -> Statistics:
    """In two passes: E[z^2] - E[z]^2 would cancel where the mean is large.

    An empty batch has the mean and the variance 0.
    """
    count = at_least_one(z.shape[0])
    mean = z.sum(0) / count
    return Statistics(mean, (z - mean).square().sum(0) / count, z.shape[0])


def compute_rstd(variance: Tensor, eps: float) -> Tensor:
    return 1 / torch.sqrt(variance + eps)


def update_running_statistics(
    batch: Statistics,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    num_batches_tracked: Tensor | None,
    momentum: float | None,
) -> None:
    """running = (1 - factor) * running + factor * batch, in place; the variance is the unbiased.

    num_batches_tracked is counted up. The factor is the momentum, or where that is None
    1 / num_batches_tracked, this batch counted: the mean over all batches so far. Each of the three
    is left out where it is None. An empty batch is counted and changes no running statistic.
    """
    count = None if num_batches_tracked is None else num_batches_tracked + 1
    if running_mean is not None or running_var is not None:
        factor = 1 / count.to(batch.mean.dtype) if momentum is None else momentum
        # sym_min is min also of symbolic sizes.
        factor = factor * torch.sym_min(batch.count, 1)
        if running_mean is not None:
            _move(running_mean, batch.mean, factor)
        if running_var is not None:
            unbiased = batch.variance * batch.count / at_least_one(batch.count - 1)
            _move(running_var, unbiased, factor)
    if count is not None:
        # Last: within torch.func.vmap PyTorch refuses the others where they have no slices.
        num_batches_tracked.copy_(count)


def _move(running: Tensor, new: Tensor, factor: float | Tensor) -> None:
    running.copy_((1 - factor) * running.to(new.dtype) + factor * new)
