"""linear_scale_batch_norm and its gradients."""

import torch
from torch import Tensor

from .._library import ops
from ..precision import Precision
from ..reference import SHARE_OF_SUM, compute_dtype
from ..weights.splits import find_split_under_grad
from ._arguments import no_autocast
from ._batch_norm import differentiate_batch_norm, has_gradient_kernel, normalize_wide
from ._derivatives import add, differentiable, is_batched, keep_outputs
from ._documents import document
from ._linear_batch_norm import LinearBatchNorm, run_linear_batch_norm
from ._product import flatten, multiply, multiply_unrounded, scale_by, sum_to
from ._unchanged import asks

_train_op = ops.linear_scale_batch_norm_train.default
_norm_op = ops.batch_norm_gradient.default
_unscale_op = ops.unscale_columns.default
_scale_gradient_op = ops.scale_gradient.default


@document
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
    process_group: "torch.distributed.ProcessGroup | None" = None,
    precision: Precision | None = None,
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
        {weight_of_x_in_training}
        {bias}
        {scale}
        {running}
        {affine}
        {training}
        {process_group}
        {precision_of_linear}
        {promoted_out_dtype}
        {weight_split}

    Returns:
        {returns}

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
        {tensor_errors_of_batch_norm}
        {errors_of_statistics}
    {nothing_updated}
    """
    return run_linear_batch_norm(
        _FUNCTION,
        x,
        weight,
        bias,
        scale,
        running_mean,
        running_var,
        gamma,
        beta,
        training,
        momentum,
        eps,
        num_batches_tracked,
        process_group,
        precision,
        out_dtype,
        weight_split,
    )


def _find_saved(x, weight, scale, gamma, beta) -> dict[str, Tensor | None]:
    return {
        "x": x if asks(weight) or asks(scale) else None,
        "weight": weight if asks(x) or asks(scale) else None,
        "scale": scale,
        "gamma": gamma,
    }


def _run_parts(z, scale, normalize, tracked, out_dtype) -> Tensor:
    v = scale_by(scale, z)
    return normalize(flatten(v)).reshape(v.shape).to(out_dtype)


def _run_wide(z, scale, *vectors) -> Tensor:
    return normalize_wide(scale_by(scale, z), *vectors)


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
        keep_outputs(ctx, mean, rstd, centre, differentiable=v)
        ctx.save_for_backward(
            x if need_weight or need_scale else None,
            weight if need_x or need_scale else None,
            *(scale, gamma, v, rstd, centre),
        )

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y, grad_kept=None, *_):
        if grad_y is None and grad_kept is None:
            return (None,) * 13
        x, weight, scale, gamma, v, rstd, centre = saved
        grad_v = grad_gamma = grad_beta = None
        need_x, need_weight, need_bias, need_scale = ctx.needs_input_grad[:4]
        grad_x = grad_weight = grad_bias = grad_scale = None
        is_fused = need_scale and grad_kept is None and not composed
        is_fused = is_fused and _has_kernels(grad_y, v, x, weight, rstd)
        with no_autocast(grad_kept if grad_y is None else grad_y):
            if is_fused:
                grads = _differentiate_fused(grad_y, *saved, ctx.eps, ctx.precision, need_x)
                grad_x, grad_weight, grad_scale, grad_gamma, grad_beta = grads
                need_x = need_scale = need_weight = False
            elif grad_y is not None:
                options = (ctx.eps, composed)
                grads = differentiate_batch_norm(grad_y, v, centre, rstd, gamma, *options)
                grad_v, grad_gamma, grad_beta = grads
            grad_v = add(grad_v, grad_kept)
            if need_x:
                grad_x = multiply(scale_by(scale, grad_v).to(weight.dtype), weight, ctx.precision)
            if need_scale:
                # (N, M) @ (M, K)
                unscaled = multiply_unrounded(grad_v.to(x.dtype).t(), x, ctx.precision)
                grad_weight = (unscaled * scale.reshape(-1, 1)).to(x.dtype)
                grad_scale = (unscaled * weight).sum(1, dtype=rstd.dtype)
                if grad_kept is None and not composed:
                    grad_n = grad_gamma if gamma is None else grad_gamma * gamma
                    grad_scale = _replace_cancelled(grad_scale, scale, grad_n, rstd, ctx.eps)
                grad_scale = sum_to(grad_scale, scale)
            elif need_weight:
                rows = scale_by(scale, grad_v).to(x.dtype)
                grad_weight = multiply(rows.t(), x, ctx.precision)
        if need_bias:
            grad_bias = torch.zeros_like(rstd, dtype=ctx.bias_dtype)
        grad_gamma = None if gamma is None or grad_y is None else grad_gamma.to(gamma.dtype)
        if grad_y is not None:
            grad_beta = None if ctx.beta_dtype is None else grad_beta.to(ctx.beta_dtype)
        grads = (grad_x, grad_weight, grad_bias, grad_scale, None, None, None)
        return *grads, grad_gamma, grad_beta, None, None, None, None


def _has_kernels(grad_y: Tensor, v: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> bool:
    """Whether ops that write to what they are given may take it."""
    is_one_dtype = x.dtype == weight.dtype and rstd.dtype == torch.float32
    is_plain = torch.compiler.is_compiling() or (has_gradient_kernel(rstd) and not is_batched())
    return grad_y.is_cuda and v.numel() > 0 and is_one_dtype and is_plain


def _differentiate_fused(
    grad_y: Tensor,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    gamma: Tensor | None,
    v: Tensor,
    rstd: Tensor,
    centre: Tensor,
    eps: float,
    precision: str,
    need_x: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weight, scale, gamma and beta, of which weight and scale share a product
    (include/cutlass_fused/gradients/scale.hpp)."""
    # One of both may be wider, as the gradient of a result in fp32 is.
    dtype = torch.promote_types(grad_y.dtype, v.dtype)
    grad_y, v = grad_y.to(dtype), v.to(dtype)
    rows, grad_gamma, grad_beta = _norm_op(grad_y, v, centre, rstd, gamma, scale)
    grad_x = multiply(rows.to(x.dtype), weight, precision) if need_x else None
    _unscale_op(rows, grad_y, v, centre, rstd, grad_gamma, grad_beta, eps, gamma)
    grad_weight = multiply(rows.to(x.dtype).t(), x, precision).contiguous()
    of_columns = _scale_gradient_op(grad_weight, weight, scale, rstd, grad_gamma, eps, gamma)
    return grad_x, grad_weight, sum_to(of_columns, scale), grad_gamma, grad_beta


def _replace_cancelled(
    direct: Tensor, scale: Tensor, grad_n: Tensor, rstd: Tensor, eps: float
) -> Tensor:
    """The gradient of scale: per column, sum(grad_v * z) over the rows.

    z = v / scale is lost where scale is 0, but the sum is that of unscaled * weight over K, with
    unscaled = grad_v.T @ x (the bias drops out: grad_v adds up to 0): `direct`. Where the variance
    is above eps that cancels, since y hardly depends on scale. What it leaves is known exactly:
    with n = (v - mean) * rstd, grad_n = sum(grad_y * gamma * n), and share = eps / (var + eps),

        sum(grad_v * z) = grad_n * share / scale

    That is the gradient alone: its derivatives are those of the direct sum.
    """
    share = eps * rstd.square()
    return torch.where(share > SHARE_OF_SUM, direct, grad_n * share / scale)


_FUNCTION = LinearBatchNorm(
    "linear_scale_batch_norm",
    ops.linear_scale_batch_norm_inference.default,
    _train_op,
    _LinearScaleBatchNormTrain,
    _find_saved,
    _run_parts,
    _run_wide,
    is_softmax=False,
)
