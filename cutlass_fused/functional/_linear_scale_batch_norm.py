"""linear_scale_batch_norm and its gradients."""

import torch
from torch import Tensor

from .._library import ops
from ..checks import check_dense, check_linear_batch_norm
from ..precision import resolve_precision
from ..reference import compute_dtype
from ..weights.splits import find_split, find_split_under_grad
from ._arguments import (
    cast_for_autocast,
    check_batch_norm,
    check_parts,
    check_rows,
    check_tensors,
    differentiates,
    make_scale,
    name_out,
    no_autocast,
    promote_with_scale,
    read_momentum,
    read_number,
    refuse_forward_ad,
    requires_grad,
    scales_rows,
)
from ._batch_norm import batch_norm, differentiate_batch_norm, normalize_wide
from ._differentiable_once import differentiable_once
from ._linear import linear
from ._other_layouts import STRIDED
from ._product import flatten, multiply, multiply_unrounded, scale_by, sum_to
from ._unchanged import apply_in_training, asks

_inference_op = ops.linear_scale_batch_norm_inference.default
_train_op = ops.linear_scale_batch_norm_train.default


def linear_scale_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: float | Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    num_batches_tracked: Tensor | None = None,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
) -> Tensor:
    """y = (v - mean) / sqrt(var + eps) * gamma + beta with v = (x @ weight.T + bias) * scale

    The mean and the variance are the running ones or, in training, those of v over the batch, with
    the biased variance. Training moves the running statistics:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance.

    Args:
        x: (M, K), float16, bfloat16 or float32 (on the CPU also float64); any strides. Without
            training any number of leading dimensions, also none. A sparse x is multiplied by
            PyTorch, and what follows is not fused with that.
        weight: (N, K), dtype of x; any strides.
        bias: (N,), dtype of x or float32, any stride.
        scale: a number, or a tensor with one element or of shape (N,) or (1, N), dtype of x,
            float32, narrower than x or of integers; one of shape (M, 1) or (M, N) multiplies z in
            PyTorch, which what follows it then reads; None is 1. A tensor stays on its device:
            nothing is read back.
        running_mean, running_var: (N,), dtype of x or float32, any stride. In training each is
            updated in place, for which the stride must not be 0, or may be None.
        gamma, beta: (N,), dtype of x or float32, any stride; None is 1 and 0.
        training: whether the statistics are those of the batch.
        momentum: a number; None is 1 / num_batches_tracked, for the mean over all batches.
        eps: a number that is positive in fp32.
        num_batches_tracked: one int64 number, which training counts up first, on its device. It
            must be given where momentum is None.
        precision: what float32 inputs get; see cutlass_fused.functional.linear.
        out_dtype: dtype of x or float32. None is the dtype of the same expression in PyTorch: that
            of x, but float32 where a float32 scale of shape (1,) or (N,) stands beside 16-bit x.
        weight_split: what torch.ops.cutlass_fused.split_weight returned for this weight and
            precision, if the weight has not changed since: used where no gradient is asked for. See
            cutlass_fused.prepare, which keeps one with a module.

    Returns:
        (..., N), contiguous, of `out_dtype`.

    Numerics: sums, statistics and tail in fp32 (float64 for float64 inputs), rounded at the end; in
    training v goes through memory in the dtype of y, in 16 bits less what the bias adds to its
    columns, or all of its mean where that is far, unless one kernel computes all of y, as one
    for 16-bit inputs without gradients does. Under autocast x, weight and bias are cast to its
    dtype first, the others are not. An empty batch is counted and changes no running statistic.
    Statistics of a batch are merged as by Chan, Golub and LeVeque (1979): a large mean cancels
    nothing. The tail behind the product is one function of its fp32 sums, as in CUTLASS.
    The backward pass uses the same precision; each gradient has the dtype of its input. In training
    that of bias is 0: the mean takes the bias out of y.

    Raises:
        TypeError: x or weight is not a tensor, another argument neither that nor None, scale
            neither that nor a number, or momentum or eps no number.
        NotImplementedError: forward-mode differentiation.
        ValueError: unknown precision, a batch of one in training, no running statistics otherwise,
            eps not positive.
        RuntimeError: shapes, dtypes, layouts, strides or devices that do not fit; running
            statistics that require a gradient, where gradients are enabled; on the CPU, those of
            torch.inference_mode in training outside it; torch.jit.trace with a gradient to record;
            CUDA tensors where the library is not built or the GPU is not supported.
    A call that raises has updated nothing, unless the GPU failed or its memory was full.
    """
    op = "linear_scale_batch_norm"
    check_tensors(op, x, weight, bias)
    tracked = (running_mean, running_var, num_batches_tracked)
    momentum, eps = read_momentum(op, momentum), read_number(op, "eps", eps)
    check_batch_norm(op, *tracked, gamma, beta, training, eps)
    refuse_forward_ad(op)
    x, weight, bias = cast_for_autocast(x, weight, bias)
    precision = resolve_precision(precision, op, x.dtype)
    scale = make_scale(op, scale, x)
    asked, out_dtype = out_dtype, promote_with_scale(x, scale, out_dtype)
    if x.layout is not STRIDED or scales_rows(scale, x, weight):
        check_parts(op, x, weight, bias, tracked, (gamma, beta), training, momentum, asked)
        count = {"num_batches_tracked": num_batches_tracked}
        v = scale_by(scale, linear(x, weight, bias, precision=precision, weight_split=weight_split))
        y = batch_norm(flatten(v), *tracked[:2], gamma, beta, training, momentum, eps, **count)
        return y.reshape(v.shape).to(out_dtype or x.dtype)
    matrices, out = (x, weight, bias, scale), name_out(x, out_dtype)
    asking = (*matrices, gamma, beta)
    if training:
        check_rows(op, x, weight)
        arguments = (*matrices, *tracked, gamma, beta, momentum, eps, precision)
        if requires_grad(*asking):
            saved = {
                "x": x if asks(weight) or asks(scale) else None,
                "weight": weight if asks(x) or asks(scale) else None,
                "scale": scale,
                "gamma": gamma,
            }
            arguments = (*arguments, out)
            y = apply_in_training(op, _LinearScaleBatchNormTrain, arguments, tracked, saved)
        else:
            split = find_split(weight, precision, weight_split)
            y, _, _, _ = _train_op(*arguments, weight_split=split, out=out)
        return y
    if not differentiates(*asking):
        split = find_split(weight, precision, weight_split)
        arguments = (*matrices, running_mean, running_var, gamma, beta, eps, precision)
        return _inference_op(*arguments, weight_split=split, out=out)
    # The gradients of scale and gamma need z, which the fused op does not give, so its parts run
    # instead, behind its checks.
    check_dense(op, x)
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    z = linear(x, weight, bias, precision=precision, out_dtype=compute_dtype(x))
    v = scale_by(scale, z)
    y = normalize_wide(v, running_mean, running_var, gamma, beta, eps)
    return y.to(out_dtype or x.dtype)


class _LinearScaleBatchNormTrain(torch.autograd.Function):
    """Gives y, and what its backward pass reads: v less a shift, mean, rstd, and the mean of that
    v."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        *arguments, out = arguments
        x, weight, precision = arguments[0], arguments[1], arguments[-1]
        options = {"weight_split": find_split_under_grad(weight, precision), "out": out}
        centre = torch.empty(weight.shape[:1], dtype=compute_dtype(x), device=x.device)
        results = _train_op(*arguments, keep_z=True, centre=centre, **options)
        return *results, centre

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, scale, _, _, _, gamma, beta, _, ctx.eps, ctx.precision, _ = inputs
        _, v, mean, rstd, centre = output
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.beta_dtype = None if beta is None else beta.dtype
        need_x, need_weight, _, need_scale = ctx.needs_input_grad[:4]
        ctx.mark_non_differentiable(v, mean, rstd, centre)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            x if need_weight or need_scale else None,
            weight if need_x or need_scale else None,
            *(scale, gamma, v, rstd, centre),
        )

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, grad_y, *_):
        if grad_y is None:
            return (None,) * 13
        x, weight, scale, gamma, v, rstd, centre = saved
        grad_v, grad_gamma, grad_beta = differentiate_batch_norm(grad_y, v, centre, rstd, gamma)
        need_x, need_weight, need_bias, need_scale = ctx.needs_input_grad[:4]
        grad_x = grad_weight = grad_bias = grad_scale = None
        with no_autocast(grad_y):
            if need_x:
                grad_x = multiply(scale_by(scale, grad_v).to(weight.dtype), weight, ctx.precision)
            if need_scale:
                # (N, M) @ (M, K)
                unscaled = multiply_unrounded(grad_v.to(x.dtype).t(), x, ctx.precision)
                grad_weight = (unscaled * scale.reshape(-1, 1)).to(x.dtype)
                grad_n = grad_gamma if gamma is None else grad_gamma * gamma
                grad_scale = _differentiate_scale(scale, grad_n, rstd, ctx.eps, unscaled, weight)
            elif need_weight:
                rows = scale_by(scale, grad_v).to(x.dtype)
                grad_weight = multiply(rows.t(), x, ctx.precision)
        if need_bias:
            grad_bias = torch.zeros_like(rstd, dtype=ctx.bias_dtype)
        grad_gamma = None if gamma is None else grad_gamma.to(gamma.dtype)
        grad_beta = None if ctx.beta_dtype is None else grad_beta.to(ctx.beta_dtype)
        grads = (grad_x, grad_weight, grad_bias, grad_scale, None, None, None)
        return *grads, grad_gamma, grad_beta, None, None, None, None


def _differentiate_scale(
    scale: Tensor,
    grad_n: Tensor,
    rstd: Tensor,
    eps: float,
    unscaled: Tensor,
    weight: Tensor,
) -> Tensor:
    """The gradient of scale: per column, sum(grad_v * z) over the rows.

    z = v / scale is lost where scale is 0, but the sum is that of unscaled * weight over K, with
    unscaled = grad_v.T @ x (the bias drops out: grad_v adds up to 0). Where the variance is above
    eps that cancels, since y hardly depends on scale. What it leaves is known exactly: with
    n = (v - mean) * rstd, grad_n = sum(grad_y * gamma * n), and share = eps / (var + eps),

        sum(grad_v * z) = grad_n * share / scale
    """
    share = eps * rstd.square()
    direct = (unscaled * weight).sum(1, dtype=rstd.dtype)
    return sum_to(torch.where(share > 0.5, direct, grad_n * share / scale), scale)
