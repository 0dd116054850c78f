"""Sums over processes that PyTorch differentiates, to any order.

Of the gradient of such a sum each process may have a share, where it computes a part of the result
that nobody else does, or all of it, where all processes go on with the same numbers.
"""

import torch
from torch import Tensor, distributed


def all_reduce(share: Tensor, group: "distributed.ProcessGroup") -> Tensor:
    """The sum of the shares. Its gradient is a share in each process, and is added up too."""
    return _AllReduce.apply(share, group, True, True)


def all_reduce_forward(share: Tensor, group: "distributed.ProcessGroup") -> Tensor:
    """The sum of the shares. Its gradient is whole in each process, and as it is that of the
    share."""
    return _AllReduce.apply(share, group, True, False)


class _AllReduce(torch.autograd.Function):
    """In the forward pass, in the backward pass, or in both. The backward pass is the same with
    the two exchanged: it has a gradient in turn."""

    @staticmethod
    def forward(ctx, tensor, group, in_forward, in_backward):
        ctx.exchanged = (group, in_backward, in_forward)
        if not in_forward:
            return tensor.view_as(tensor)
        total = tensor.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, grad):
        return _AllReduce.apply(grad, *ctx.exchanged), None, None, None
