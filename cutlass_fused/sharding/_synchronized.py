"""A batch norm in training whose statistics are those of the batches of several processes, as of
torch.nn.SyncBatchNorm.

Each process finds the mean, M2 (the sum of squares of what differs from the mean) and the count of
its own rows. All get those of all processes, and merge them by the formula of Chan, Golub and
LeVeque (1979), in the same order: the results are the same bits in every process. The backward pass
adds up the sums of grad_y and of grad_y * n over the processes.
"""

import torch
from torch import Tensor, distributed

from .._library import ops
from ..functional._arguments import requires_grad
from ..functional._derivatives import differentiable, is_forward_mode
from ..reference import compute_rstd
from ..reference._arithmetic import compute_dtype
from ..reference._batch_norm import Statistics
from ._all_reduce import all_reduce

_normalize_op = ops.batch_norm_inference.default
# What the kernel that finds a variance adds to it, which is taken from 1 / rstd ** 2. Where the
# variance is 0, rstd would be infinite without.
_TINY = 1e-30


def normalize_over(
    op: str,
    groups: tuple,
    z: Tensor,
    tracked: tuple[Tensor | None, Tensor | None, Tensor | None],
    gamma: Tensor | None,
    beta: Tensor | None,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """y of this process. `groups`: a distributed.ProcessGroup, of which every process has to call
    it, also with no rows; or none, where this process has all of them. `tracked`: the running mean
    and variance and the count of batches, which move.

    Numerics: statistics of a process and sums in fp32 (float64 for float64 z, and for means on the
    CPU), the merge in float64; y is rounded once.
    """
    if is_forward_mode() or torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            f"{op}: statistics of several processes must be asked for outside of torch.func and of "
            f"forward mode, got process_group within"
        )
    gamma, beta = (widen(each, z.dtype) for each in (gamma, beta))
    arguments = (z, gamma, beta, eps, groups, tracked, momentum)
    if requires_grad(z, gamma, beta):
        return _Normalize.apply(*arguments)
    return _run(*arguments)[0]


def widen(vector: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """As the op takes it beside a matrix of this dtype, which may be wider than x was."""
    is_narrow = vector is not None and vector.dtype.itemsize < dtype.itemsize
    return vector.to(dtype) if is_narrow else vector


def _run(z, gamma, beta, eps, groups, tracked, momentum):
    """y, and the mean, rstd and number of all rows."""
    batch = find_statistics(z, groups)
    y = _normalize_op(z, batch.mean, batch.variance, gamma, beta, eps)
    rstd = compute_rstd(batch.variance, eps)
    update_running_statistics(batch, *tracked, momentum)  # the last that takes memory
    return y, batch.mean, rstd, batch.count


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, gamma, beta, eps, groups, tracked, momentum):
        y, mean, rstd, count = _run(z, gamma, beta, eps, groups, tracked, momentum)
        ctx.eps, ctx.groups = eps, groups
        ctx.beta_dtype = None if beta is None else beta.dtype
        ctx.save_for_backward(z, gamma, mean, rstd, count)
        return y

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y):
        z, gamma, mean, rstd, count = saved
        if composed:
            grads = _compose(grad_y, z, gamma, rstd.dtype, count, ctx.eps, ctx.groups)
        else:
            need_z = ctx.needs_input_grad[0]
            grads = _differentiate(grad_y, z, gamma, mean, rstd, count, ctx.groups, need_z)
        grad_z, grad_gamma, grad_beta = grads
        grad_z = None if grad_z is None else grad_z.to(z.dtype)
        grad_gamma = None if gamma is None else grad_gamma.to(gamma.dtype)
        grad_beta = None if ctx.beta_dtype is None else grad_beta.to(ctx.beta_dtype)
        return grad_z, grad_gamma, grad_beta, None, None, None, None


def find_statistics(z: Tensor, groups: tuple) -> Statistics:
    """Of the rows of all processes of a group, of this one where there is none; the count is a
    tensor, which nobody waits for."""
    n, dtype = z.shape[1], compute_dtype(z)
    own = torch.cat(_find_own(z, dtype))
    everyone = own.unsqueeze(0)
    if groups:
        everyone = own.new_empty(groups[0].size(), 2 * n + 1)
        distributed.all_gather(list(everyone.unbind()), own, groups[0])
    batch = merge(everyone[:, :n], everyone[:, n : 2 * n], everyone[:, 2 * n])
    return Statistics(*(each.to(dtype) for each in batch))


def _find_own(z: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, M2 and the count of rows, in float64."""
    m, wide = z.shape[0], torch.float64
    count = torch.full((1,), m, dtype=wide, device=z.device)
    if z.is_cuda and z.numel() > 0:
        # One pass of PyTorch's over z, by Welford's formula in fp32. A mean in float64 would take a
        # copy of z.
        mean, rstd = torch.batch_norm_stats(z.contiguous(), _TINY)
        return mean.to(wide), rstd.to(wide).reciprocal().square() * m, count
    # Where columns are far from 0, a mean in fp32 is off by much beside the difference of two,
    # which the merge squares.
    mean = z.sum(0, dtype=wide) / max(m, 1)
    m2 = (z.to(dtype) - mean.to(dtype)).square().sum(0)
    return mean, m2.to(wide), count


def merge(means: Tensor, m2s: Tensor, counts: Tensor) -> Statistics:
    """Of parts, (P, N) and (P,), one by one:

    mean = mean_a + (mean_b - mean_a) * count_b / count
    M2 = M2_a + M2_b + (mean_b - mean_a)^2 * count_a * count_b / count
    """
    mean, m2, count = means[0], m2s[0], counts[0]
    for other, other_m2, rows in zip(means[1:], m2s[1:], counts[1:], strict=True):
        total = count + rows
        share = rows / total.clamp(min=1)
        shift = other - mean
        # A part of no rows has the mean 0, which counts for nothing.
        m2 = m2 + other_m2 + shift * (shift * (count * share))
        mean, count = mean + shift * share, total
    return Statistics(mean, m2 / count.clamp(min=1), count)


def update_running_statistics(
    batch: Statistics, running_mean, running_var, num_batches_tracked, momentum: float | None
) -> None:
    """What reference.update_running_statistics does, for a count that is a tensor. Nothing has
    moved where there is no memory."""
    mean, variance, rows = batch
    new: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        count = None if num_batches_tracked is None else num_batches_tracked + 1
        if running_mean is not None or running_var is not None:
            factor = 1 / count.to(mean.dtype) if momentum is None else momentum
            factor = factor * rows.clamp(max=1)  # without rows nothing moves
            unbiased = variance * rows / (rows - 1).clamp(min=1)
            for running, of_batch in ((running_mean, mean), (running_var, unbiased)):
                if running is not None:
                    old = running.to(of_batch.dtype)
                    new.append((running, (1 - factor) * old + factor * of_batch))
        if count is not None:
            new.append((num_batches_tracked, count))
        for tracked, moved in new:
            tracked.copy_(moved)


def _differentiate(grad_y, z, gamma, mean, rstd, count, groups, need_z: bool):
    """The gradients of z, of all rows, and of gamma and beta, of the rows of this process, whose
    sum over the processes data parallelism takes:

    grad_z = gamma * rstd * (grad_y - (sum(grad_y) + n * sum(grad_y * n)) / count)
    """
    has_kernels, n = z.is_cuda and z.numel() > 0, None
    if has_kernels:
        grad_y, z = grad_y.contiguous(), z.contiguous()
        options = (None, True, False, False)
        sum_1, sum_d, *_ = torch.batch_norm_backward_reduce(grad_y, z, mean, rstd, *options)
        sum_n = sum_d * rstd  # sum_d is that of grad_y * (z - mean)
    else:
        grad_y = grad_y.to(rstd.dtype)
        n = (z.to(rstd.dtype) - mean) * rstd
        sum_1, sum_n = grad_y.sum(0), (grad_y * n).sum(0)
        sum_d = sum_n / rstd
    if not need_z:
        return None, sum_n, sum_1
    sums = torch.stack((sum_1, sum_d))
    for group in groups:
        distributed.all_reduce(sums, group=group)
    total_1, total_d = sums
    if has_kernels:
        gamma = None if gamma is None else gamma.to(rstd.dtype).contiguous()
        rows = count.to(torch.int32).reshape(1)
        options = (gamma, total_1, total_d, rows)
        return torch.batch_norm_backward_elemt(grad_y, z, mean, rstd, *options), sum_n, sum_1
    factor = rstd if gamma is None else rstd * gamma.to(rstd.dtype)
    share = (total_1 + n * (total_d * rstd)) / count.clamp(min=1)
    return factor * (grad_y - share), sum_n, sum_1


def _compose(grad_y, z, gamma, dtype, count, eps, groups):
    """The same of ops that PyTorch differentiates, mean and rstd as functions of z."""

    def add(share: Tensor) -> Tensor:
        return all_reduce(share, groups[0]) if groups else share

    z, grad_y, count = z.to(dtype), grad_y.to(dtype), count.clamp(min=1)
    mean = add(z.sum(0)) / count
    rstd = compute_rstd(add((z - mean).square().sum(0)) / count, eps)
    n = (z - mean) * rstd
    sum_1, sum_n = grad_y.sum(0), (grad_y * n).sum(0)
    sums = add(torch.stack((sum_1, sum_n)))
    factor = rstd if gamma is None else rstd * gamma.to(dtype)
    return factor * (grad_y - (sums[0] + n * sums[1]) / count), sum_n, sum_1
