"""The gradients of z = x @ weight.T + bias, which every function with a product needs."""

import math

import torch
from torch import Tensor

from .._library import ops
from .._when_imported import when_imported
from ..reference import compute_dtype
from ..weights import accumulated
from ..weights.splits import find_split
from ._arguments import no_autocast
from ._derivatives import add, is_forward_mode, may_differentiate_in_graph

linear_op = ops.linear.default
_bmm_op = ops.bmm.default


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


def differentiate_matrices(
    ctx, grad_z: Tensor, x: Tensor | None, weight: Tensor | None, needed: tuple | None = None
):
    """The gradients of x and weight, those that are asked for, from that of z. `needed`: which are,
    of the inputs."""
    grad_x = grad_weight = None
    need_x, need_weight = (ctx.needs_input_grad if needed is None else needed)[:2]
    rows = flatten(grad_z)
    if ctx.is_mixed:
        x, weight = x if need_weight else None, weight if need_x else None
        return _differentiate_mixed(ctx, grad_z, rows, x, weight)
    if need_x:
        # (M, N) @ (N, K)
        grad_x = _multiply_by_weight(rows.to(weight.dtype), weight, ctx.precision)
        if rows is not grad_z:
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


def _multiply_by_weight(grad: Tensor, weight: Tensor, precision: str) -> Tensor:
    """grad @ weight. The split of a weight that is not trained is kept, as those of forward passes
    are: forces of a potential and frozen layers ask for nothing but gradients of x."""
    # A weight that is no parameter may be another tensor in every call.
    is_frozen = type(weight) is torch.nn.Parameter and not weight.requires_grad
    if not is_frozen or not _has_kernel(grad) or _is_recorded():
        return multiply(grad, weight, precision)
    return linear_op(
        grad, weight.t(), None, precision, None, find_split(weight, precision, of_columns=True)
    )


def _multiply_mixed(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, with b of float32, and a of float32 or of 16 bits, as the result may then be."""
    if a.is_cuda and not _is_recorded():
        return linear_op(a, b.t(), None, precision)
    return multiply(a.float(), b, precision)


def multiply(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b of matrices, or of batches of as many, in the precision of the forward pass, with
    derivatives of all orders and modes.

    PyTorch's product follows its own global setting for fp32 on the GPU; the op takes an argument.
    """
    if not _has_kernel(a):
        return torch.matmul(a, b)
    if _is_recorded():
        return _record(a, b, precision)
    return _run_op(a, b, precision)


def multiply_unrounded(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, with 16-bit matrices in fp32: for what is not the last step of a gradient."""
    if a.dtype.itemsize > 2:
        return multiply(a, b, precision)
    if a.is_cuda and not _is_recorded():
        return torch.mm(a, b, out_dtype=torch.float32)
    return multiply(a.float(), b.float(), precision)


def compose_product(x: Tensor, weight: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    """z = x @ weight.T + bias in fp32 (float64 for float64 inputs), of ops that have all
    derivatives. 16-bit products are PyTorch's, and rounded."""
    accumulated.refuse_recorded_buffer(weight)
    dtype = compute_dtype(x)
    z = multiply(flatten(x).to(weight.dtype), weight.t(), precision)
    z = z.reshape(*x.shape[:-1], weight.shape[0]).to(dtype)
    return z if bias is None else z + bias.to(dtype)


def _run_op(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """Of two matrices, or of two batches of as many."""
    if a.dim() == 2:
        return linear_op(a, b.t(), None, precision)
    return _bmm_op(a, b.transpose(1, 2), precision)


def _has_kernel(a: Tensor) -> bool:
    return a.is_cuda and a.dtype == torch.float32


def _is_recorded() -> bool:
    """Whether a product may be differentiated, or be one of slices of torch.func.vmap."""
    if torch.compiler.is_compiling():  # within a backward pass
        return torch.is_grad_enabled() and may_differentiate_in_graph()
    return (
        torch.is_grad_enabled() or is_forward_mode() or torch._C._are_functorch_transforms_active()
    )


class _Product(torch.autograd.Function):
    """What multiply records."""

    @staticmethod
    def forward(a, b, precision):
        return _run_op(a, b, precision)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, ctx.precision = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        if grad is None:
            return None, None, None
        need_a, need_b, _ = ctx.needs_input_grad
        with no_autocast(grad):
            grad_a = multiply(grad, b.transpose(-1, -2), ctx.precision) if need_a else None
            grad_b = multiply(a.transpose(-1, -2), grad, ctx.precision) if need_b else None
        return grad_a, grad_b, None

    @staticmethod
    def jvp(ctx, tangent_a, tangent_b, _):
        a, b = ctx.saved_tensors
        of_a = None if tangent_a is None else multiply(tangent_a, b, ctx.precision)
        of_b = None if tangent_b is None else multiply(a, tangent_b, ctx.precision)
        return add(of_a, of_b)

    @staticmethod
    def vmap(info, in_dims, a, b, precision):
        """One product where only one of them has slices, else one of a batch."""
        in_a, in_b, _ = in_dims
        a = a if in_a is None else a.movedim(in_a, 0)
        b = b if in_b is None else b.movedim(in_b, 0)
        slices, is_batch = info.batch_size, (a.dim() if in_a is None else a.dim() - 1) == 3
        if is_batch or (in_a is not None and in_b is not None):
            # Behind the slices each has its matrices, of one batch or alone.
            a = a.expand(slices, *a.shape) if in_a is None else a
            b = b.expand(slices, *b.shape) if in_b is None else b
            y = multiply(_flatten_batches(a), _flatten_batches(b), precision)
            return y.reshape(*a.shape[:-1], b.shape[-1]), 0
        if in_a is not None:
            return multiply(flatten(a), b, precision).reshape(*a.shape[:-1], b.shape[-1]), 0
        # (M, K) @ (K, slices * N)
        columns = b.movedim(0, 1)
        y = multiply(a, columns.reshape(b.shape[1], slices * b.shape[2]), precision)
        return y.reshape(a.shape[0], *columns.shape[1:]), 1


def _record(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """TorchDynamo refuses a Function with a jvp, and would trace backward passes without end."""
    return _Product.apply(a, b, precision)


when_imported("torch._dynamo", lambda dynamo: dynamo.allow_in_graph(_record))


def _flatten_batches(tensor: Tensor) -> Tensor:
    return tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:])


def scale_by(scale: Tensor | None, columns: Tensor) -> Tensor:
    return columns if scale is None else columns * scale


def sum_to(terms: Tensor, scale: Tensor) -> Tensor:
    """The sum of (..., N) terms for a scale of one element or of shape (N,)."""
    total = terms.sum() if scale.numel() == 1 else flatten(terms).sum(0)
    return total.reshape(scale.shape).to(scale.dtype)


def flatten(tensor: Tensor) -> Tensor:
    """(..., K) as (M, K). In a word that batches of gradients (is_grads_batched) know."""
    if tensor.dim() == 2:
        return tensor  # to no word takes less time
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
