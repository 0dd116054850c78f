"""batch_norm and its gradients: with the running statistics, and through those of the batch."""

import torch
from torch import Tensor

from .. import sharding
from .._library import ops
from ..checks import check_batch, check_dense, check_updated
from ..checks import check_batch_norm as check_vectors
from ..epilogues.linear_scale_batch_norm_inference import normalize
from ..reference import compute_dtype, compute_rstd
from ..sharding import apply, spans_processes
from ._arguments import (
    check_batch_norm,
    check_rows,
    check_x,
    differentiates,
    read_momentum,
    read_number,
    requires_grad,
)
from ._composed_batch_norm import compose_batch_norm, compose_gradients
from ._derivatives import differentiable, is_forward_mode, is_mapped, keep_outputs
from ._derived import native
from ._documents import document
from ._product import flatten
from ._unchanged import apply_in_training, call_or_restore

_batch_norm_inference_op = ops.batch_norm_inference.default
_batch_norm_train_op = ops.batch_norm_train.default
_gradient_op = ops.batch_norm_gradient.default


@document
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: Tensor | None = None,
    process_group: "torch.distributed.ProcessGroup | None" = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * gamma + beta

    The mean and the variance are the running ones or, in training, those of the batch, with the
    biased variance. Training moves the running statistics:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance.

    Args:
        x: (M, N), float16, bfloat16 or float32 (on the CPU also float64); any strides.
        {running}
        {affine}
        {training}
        {process_group}

    Returns:
        (M, N), contiguous, of the dtype of x.

    Numerics: statistics and tail in fp32 (float64 for float64 inputs), rounded once, at the end. On
    a GPU ranges of rows are summed relative to an element of the column and merged as by Chan,
    Golub and LeVeque (1979): a large mean cancels nothing.
    Autocast changes no dtype. An empty batch is counted and changes no running statistic. Each
    gradient has the dtype of its input.

    Raises:
        TypeError: x is not a tensor, another argument neither that nor None, momentum or eps no
            number, or process_group no group of processes.
        ValueError: a batch of one in training, no running statistics otherwise, eps not positive.
        {errors_of_statistics}
    {nothing_updated}
    """
    op = "batch_norm"
    check_x(op, x)
    tracked = (running_mean, running_var, num_batches_tracked)
    momentum, eps = read_momentum(op, momentum), read_number(op, "eps", eps)
    check_batch_norm(op, *tracked, gamma, beta, training, eps)
    if not training:
        arguments = (x, running_mean, running_var, gamma, beta, eps)
        if is_forward_mode():
            _check_composed(op, x, *arguments[1:5])
            return normalize(x.to(compute_dtype(x)), *arguments[1:]).to(x.dtype)
        if differentiates(x, gamma, beta):
            return apply("batch_norm_inference", _BatchNormInference, arguments)
        return _batch_norm_inference_op(*arguments)
    if spans_processes(op, process_group, x):
        _check_composed(op, x, *tracked[:2], gamma, beta)
        check_updated(op, num_batches_tracked, momentum, *tracked[:2], x)
        affine = (gamma, beta, momentum, eps)
        return sharding.normalize_over(op, (process_group,), x, tracked, *affine)
    check_rows(op, x)
    arguments = (x, *tracked, gamma, beta, momentum, eps)
    if is_forward_mode() or is_mapped():
        _check_composed(op, x, *tracked[:2], gamma, beta)
        check_updated(op, num_batches_tracked, momentum, *tracked[:2], x)
        return compose_batch_norm(x.to(compute_dtype(x)), *arguments[1:]).to(x.dtype)
    if requires_grad(x, gamma, beta):
        if native.serves_batch_norm(x, *tracked, gamma, beta):
            return call_or_restore(tracked, ops.batch_norm_train_with_gradient.default, *arguments)
        saved = {"x": x, "gamma": gamma}
        y = apply_in_training(op, _BatchNormTrain, arguments, tracked, saved)
    else:
        y, _, _ = _batch_norm_train_op(*arguments)
    return y


def _check_composed(op: str, x: Tensor, *vectors: Tensor | None) -> None:
    check_dense(op, x)
    check_batch(op, x, "(M, N)")
    check_vectors(op, x, x.shape[1], *vectors)


def normalize_wide(
    v: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
) -> Tensor:
    """batch_norm with the running statistics over the last dimension of v, in the dtype of v."""
    vectors = (running_mean, running_var, gamma, beta)
    vectors = [None if vector is None else vector.to(v.dtype) for vector in vectors]
    return batch_norm(flatten(v), *vectors, eps=eps).reshape(v.shape)


class _BatchNormInference(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, running_mean, running_var, gamma, beta, eps):
        return _batch_norm_inference_op(x, running_mean, running_var, gamma, beta, eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, running_mean, running_var, gamma, beta, eps = inputs
        dtype = compute_dtype(x)
        ctx.dtypes = x.dtype, None if beta is None else beta.dtype
        # Numbers of its own: before the backward pass a training step may move the statistics.
        rstd = compute_rstd(running_var.to(dtype), eps)
        if ctx.needs_input_grad[3]:
            ctx.save_for_backward(x, running_mean.to(dtype, copy=True), rstd, gamma)
        else:
            ctx.save_for_backward(None, None, rstd, gamma)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y):
        x, mean, rstd, gamma = saved
        x_dtype, beta_dtype = ctx.dtypes
        grad_x = grad_gamma = grad_beta = None
        if ctx.needs_input_grad[0]:
            grad_x = (grad_y * (rstd if gamma is None else rstd * gamma)).to(x_dtype)
        if ctx.needs_input_grad[3]:
            grad_gamma = (((x - mean) * grad_y).sum(0) * rstd).to(gamma.dtype)
        if ctx.needs_input_grad[4]:
            grad_beta = grad_y.sum(0, dtype=rstd.dtype).to(beta_dtype)
        return grad_x, None, None, grad_gamma, grad_beta, None


class _BatchNormTrain(torch.autograd.Function):
    """Gives y, and mean and rstd, which its backward pass reads."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps):
        return _batch_norm_train_op(
            x, running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, _, _, gamma, beta, _, ctx.eps = inputs
        _, mean, rstd = output
        ctx.beta_dtype = None if beta is None else beta.dtype
        keep_outputs(ctx, mean, rstd)
        ctx.save_for_backward(x, mean, rstd, gamma)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y, *_):
        if grad_y is None:
            return (None,) * 8
        x, mean, rstd, gamma = saved
        # The kernels round to the dtype of the parameters, if that is the one of x.
        parameters = (None if gamma is None else gamma.dtype, ctx.beta_dtype)
        is_rounded = all(dtype in (None, x.dtype) for dtype in parameters)
        options = (ctx.eps, composed, is_rounded and grad_y.dtype == x.dtype)
        grads = differentiate_batch_norm(grad_y, x, mean, rstd, gamma, *options)
        grad_x, grad_gamma, grad_beta = grads
        grad_gamma = None if gamma is None else grad_gamma.to(gamma.dtype)
        grad_beta = None if ctx.beta_dtype is None else grad_beta.to(ctx.beta_dtype)
        return grad_x.to(x.dtype), None, None, None, grad_gamma, grad_beta, None, None


def has_gradient_kernel(rstd: Tensor) -> bool:
    """Whether nothing but a backward pass in eager mode looks at the call."""
    return (
        rstd.dtype == torch.float32 and not torch.compiler.is_compiling() and not _is_transformed()
    )


def _is_transformed() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def differentiate_batch_norm(
    grad_y: Tensor,
    z: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor | None,
    eps: float,
    composed: bool,
    round_vectors: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of z, gamma and beta, through the statistics of the batch: by PyTorch's op, or
    by kernels of our own (`has_gradient_kernel`).

    With n = (z - mean) * rstd, grad_gamma = sum(grad_y * n) and grad_beta = sum(grad_y) over the
    M rows:

        grad_z = gamma * rstd * (grad_y - (grad_beta + n * grad_gamma) / M)

    grad_z may be wider than z; the others have the dtype of rstd, also where gamma is None, or,
    with `round_vectors`, may have that of z. Where it is `composed`, of ops that can be
    differentiated, mean and rstd are computed again.
    """
    if composed:
        return compose_gradients(grad_y, z, eps, gamma, rstd.dtype)
    if z.numel() == 0:
        return torch.zeros_like(z), torch.zeros_like(rstd), torch.zeros_like(rstd)
    if z.is_cuda and has_gradient_kernel(rstd):
        # One of both may be wider, as the gradient of a result in fp32 is.
        dtype = torch.promote_types(grad_y.dtype, z.dtype)
        grad_y, z = grad_y.to(dtype), z.to(dtype)
        return _gradient_op(grad_y, z, mean, rstd, gamma, round_vectors=round_vectors)
    if not z.is_cuda or _is_transformed():
        # On the CPU, and mapped, that op wants 16-bit vectors beside 16-bit z.
        grad_y, z = grad_y.to(rstd.dtype), z.to(rstd.dtype)
    # It reads its vectors as if their stride were 1.
    gamma = torch.ones_like(rstd) if gamma is None else gamma.to(rstd.dtype).contiguous()
    return torch.ops.aten.native_batch_norm_backward(
        grad_y.contiguous(),
        z.contiguous(),
        gamma,
        None,  # the running statistics, and eps: it reads mean and rstd instead
        None,
        mean,
        rstd,
        True,
        0.0,
        [True, True, True],
    )
