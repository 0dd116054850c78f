"""Sums over processes that PyTorch differentiates, to any order.

What they add up is a share of each process. Two kinds of gradients come back: shares again, where
each process computes a part of the result that nobody else does, or whole ones, where all
processes go on with the same numbers.
"""

import torch
from torch import Tensor, distributed


def add_over(share: Tensor, group: "distributed.ProcessGroup") -> Tensor:
    """The sum, whose gradient is a share in each process: it is added up too."""
    return _Sum.apply(share, group)


def add_up(share: Tensor, group: "distributed.ProcessGroup") -> Tensor:
    """The sum, whose gradient is whole in each process, and as it is that of the share."""
    return _Total.apply(share, group)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, share, group):
        ctx.group = group
        return _all_reduce(share, group)

    @staticmethod
    def backward(ctx, grad):
        return _Sum.apply(grad, ctx.group), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, share, group):
        ctx.group = group
        return _all_reduce(share, group)

    @staticmethod
    def backward(ctx, grad):
        return _Copy.apply(grad, ctx.group), None


class _Copy(torch.autograd.Function):
    """What is whole, for a share: its gradient is a share."""

    @staticmethod
    def forward(ctx, whole, group):
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx, grad):
        return _Total.apply(grad, ctx.group), None


def _all_reduce(share: Tensor, group) -> Tensor:
    total = share.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(total, group=group)
    return total
