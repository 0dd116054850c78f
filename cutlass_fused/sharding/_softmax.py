"""A softmax whose rows are cut: each process has some columns of all rows."""

import torch
from torch import Tensor, distributed

from ..functional._derivatives import differentiable
from ..reference._arithmetic import compute_dtype
from ._all_reduce import all_reduce


def softmax_over(x: Tensor, groups: tuple, out_dtype: torch.dtype) -> Tensor:
    """softmax of the whole rows, of which x (..., n) is a part in each process of these groups, of
    which one holds a row between them. Two numbers a row are sent: its largest element and its sum;
    the backward pass sends one.

    Numerics: fp32 (float64 for float64 x), rounded once, at the end.
    """
    return _Softmax.apply(x, groups, out_dtype)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups, out_dtype):
        wide = x.to(compute_dtype(x))
        if x.shape[-1] > 0:
            most = wide.amax(-1, keepdim=True)
        else:
            most = wide.new_full((*x.shape[:-1], 1), -torch.inf)
        for group in groups:
            distributed.all_reduce(most, distributed.ReduceOp.MAX, group)
        # A NaN that a maximum has dropped comes back through the sum.
        powers = (wide - most).exp_()
        total = powers.sum(-1, keepdim=True)
        for group in groups:
            distributed.all_reduce(total, group=group)
        y = powers.div_(total).to(out_dtype)
        ctx.groups, ctx.dtypes = groups, (x.dtype, wide.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y):
        x_dtype, wide = ctx.dtypes
        grad_y, y = grad_y.to(wide), saved[0].to(wide)
        products = grad_y * y
        dot = products.sum(-1, keepdim=True)
        for group in ctx.groups:
            dot = all_reduce(dot, group)
        return (products - dot * y).to(x_dtype), None, None
