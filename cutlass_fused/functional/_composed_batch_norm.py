"""A batch norm and its gradients of ops that PyTorch differentiates, for derivatives of all orders
and modes, through the statistics of the batch."""

import torch
from torch import Tensor

from ..reference import compute_rstd
from ..reference._arithmetic import at_least_one
from ..reference._batch_norm import Statistics, compute_statistics, update_running_statistics


def find_statistics(z: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The mean and rstd of a batch, differentiably."""
    batch = compute_statistics(z)
    return batch.mean, compute_rstd(batch.variance, eps)


def compose_batch_norm(
    z: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    num_batches_tracked: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """y in the dtype of z; the running statistics are moved, once and behind all else."""
    batch = compute_statistics(z)
    y = (z - batch.mean) * compute_rstd(batch.variance, eps)
    y = y if gamma is None else y * gamma.to(y.dtype)
    y = y if beta is None else y + beta.to(y.dtype)
    tracked = (running_mean, running_var, num_batches_tracked)
    if any(tensor is not None for tensor in tracked):
        _Update.apply(batch.mean, batch.variance, batch.count, *tracked, momentum)
    return y


def compose_gradients(
    grad_y: Tensor, z: Tensor, eps: float, gamma: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """differentiate_batch_norm in ops of PyTorch, which reads mean and rstd as functions of z; in
    this dtype."""
    z, grad_y = z.to(dtype), grad_y.to(dtype)
    mean, rstd = find_statistics(z, eps)
    n = (z - mean) * rstd
    grad_gamma, grad_beta = (grad_y * n).sum(0), grad_y.sum(0)
    share = (grad_beta + n * grad_gamma) / at_least_one(z.shape[0])
    factor = rstd if gamma is None else rstd * gamma.to(dtype)
    return (grad_y - share) * factor, grad_gamma, grad_beta


class _Update(torch.autograd.Function):
    """Moves the running statistics, which no transform of torch.func lets its tensors do: a
    Function runs below them. Gives nothing that has a derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean, variance, count, running_mean, running_var, num_batches_tracked, momentum):
        batch = Statistics(mean, variance, count)
        update_running_statistics(batch, running_mean, running_var, num_batches_tracked, momentum)
        return torch.zeros_like(mean)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx, _):
        return (None,) * 7

    @staticmethod
    def jvp(ctx, *tangents):
        return None
