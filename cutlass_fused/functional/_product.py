"""The gradients of z = x @ weight.T + bias, which every function with a product needs."""

import math

import torch
from torch import Tensor

from .._library import ops

linear_op = ops.linear.default


def keep_for_product(ctx, x: Tensor, weight: Tensor, bias: Tensor | None):
    """x and weight, each only if a gradient that is asked for reads it."""
    need_x, need_weight = ctx.needs_input_grad[:2]
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.x_dtype, ctx.is_mixed = x.dtype, x.dtype != weight.dtype
    return x if need_weight else None, weight if need_x else None


def differentiate_product(ctx, grad_z: Tensor, x: Tensor | None, weight: Tensor | None):
    """The gradients of x, weight and bias, those that are asked for, from that of z."""
    grad_bias = None
    if ctx.needs_input_grad[2]:
        grad_bias = flatten(grad_z).sum(0, dtype=ctx.bias_dtype)
    return *differentiate_matrices(ctx, grad_z, x, weight), grad_bias


def differentiate_matrices(ctx, grad_z: Tensor, x: Tensor | None, weight: Tensor | None):
    """The gradients of x and weight, those that are asked for, from that of z."""
    grad_x = grad_weight = None
    need_x, need_weight = ctx.needs_input_grad[:2]
    rows = flatten(grad_z)
    if ctx.is_mixed:
        return _differentiate_mixed(ctx, grad_z, rows, x, weight)
    if need_x:
        # (M, N) @ (N, K)
        grad_x = multiply(rows.to(weight.dtype), weight, ctx.precision)
        grad_x = grad_x.reshape(*grad_z.shape[:-1], weight.shape[1])
    if need_weight:
        # (N, M) @ (M, K)
        grad_weight = multiply(rows.to(x.dtype).t(), flatten(x), ctx.precision)
    return grad_x, grad_weight


def _differentiate_mixed(ctx, grad_z: Tensor, rows: Tensor, x: Tensor | None, weight):
    """Of x of 16 bits and a weight of float32: `rows` of 16 bits stay so, those of float32 lose no
    digit."""
    grad_x = grad_weight = None
    if weight is not None:
        grad_x = _multiply_mixed(rows, weight, ctx.precision).to(ctx.x_dtype)
        grad_x = grad_x.reshape(*grad_z.shape[:-1], weight.shape[1])
    if x is not None:
        columns, is_wide = flatten(x), rows.dtype != ctx.x_dtype
        grad_weight = multiply_unrounded(
            rows.t(), columns.float() if is_wide else columns, ctx.precision
        )
    return grad_x, grad_weight


def _multiply_mixed(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, with b of float32, and a of float32 or of 16 bits, as the result then is."""
    if a.is_cuda:
        return linear_op(a, b.t(), None, precision)
    return torch.matmul(a.float(), b)


def multiply(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, in the precision of the forward pass.

    PyTorch's product follows its own global setting for fp32 on the GPU; the op takes an argument.
    """
    if a.is_cuda and a.dtype == torch.float32:
        return linear_op(a, b.t(), None, precision)
    return torch.matmul(a, b)


def multiply_unrounded(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, with 16-bit matrices in fp32: for what is not the last step of a gradient."""
    if a.dtype.itemsize > 2:
        return multiply(a, b, precision)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def scale_by(scale: Tensor | None, columns: Tensor) -> Tensor:
    return columns if scale is None else columns * scale


def sum_to(terms: Tensor, scale: Tensor) -> Tensor:
    """The sum of (..., N) terms for a scale of one element or of shape (N,)."""
    total = terms.sum() if scale.numel() == 1 else flatten(terms).sum(0)
    return total.reshape(scale.shape).to(scale.dtype)


def flatten(tensor: Tensor) -> Tensor:
    """(..., K) as (M, K). In a word that batches of gradients (is_grads_batched) know."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
