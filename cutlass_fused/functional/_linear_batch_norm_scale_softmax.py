"""linear_batch_norm_scale_softmax and its gradients."""

import torch
from torch import Tensor

from .._library import ops
from ..precision import Precision
from ..reference import compute_dtype
from ..row_ops.softmax import differentiate_softmax
from ..weights.splits import find_split_under_grad
from ._arguments import no_autocast
from ._batch_norm import differentiate_batch_norm, normalize_wide
from ._derivatives import add, differentiable, keep_outputs
from ._documents import document
from ._linear_batch_norm import LinearBatchNorm, run_linear_batch_norm
from ._product import differentiate_matrices, keep_for_product, scale_by, sum_to
from ._softmax import softmax
from ._unchanged import asks, call_or_restore

_train_op = ops.linear_batch_norm_scale_softmax_train.default


@document
def linear_batch_norm_scale_softmax(
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
    """y = softmax(scale * b, dim=1) with b = (z - mean) / sqrt(var + eps) * gamma + beta
    and z = x @ weight.T + bias

    The mean and the variance are the running ones or, in training, those of z over the batch, with
    the biased variance. Training moves the running statistics:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance.

    Args:
        x: (M, K), float16, bfloat16 or float32 (on the CPU also float64); any strides. A sparse x
            is multiplied by PyTorch, and what follows is not fused with that.
        {weight_of_x}
        {bias}
        {scale}
        {running}
        {affine}
        {training}
        {process_group}
        {precision_of_linear}
        out_dtype: dtype of x or float32. None is the dtype of the same expression in PyTorch: that
            of x, but float32 where a float32 scale of shape (1,) or (N,) stands beside 16-bit x,
            and under autocast on a GPU.
        {weight_split}

    Returns:
        (M, N), contiguous, of `out_dtype`.

    Numerics: sums, statistics and tail in fp32 (float64 for float64 inputs), rounded at the end; in
    training z, in 16 bits less what the bias adds to its columns, or all of its mean where that is
    far, or the normalized z, goes through memory in the dtype of y. Under autocast x, weight
    and bias are cast to its dtype first, the others are not. An empty batch is counted and changes
    no running statistic.
    Statistics of a batch are merged as by Chan, Golub and LeVeque (1979), parts of a row of the
    softmax as by Milakov and Gimelshein (2018).
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
        "x": x if asks(weight) else None,
        "weight": weight if asks(x) else None,
        "scale": scale,
        "gamma": gamma,
        "beta": beta if asks(scale) else None,
    }


def _run_parts(z, scale, normalize, tracked, out_dtype) -> Tensor:
    def run():
        return softmax(scale_by(scale, normalize(z)), out_dtype=out_dtype)

    # The batch norm has moved the statistics where a hook raises in what follows it.
    return call_or_restore(tracked, run)


def _run_wide(z, scale, *vectors) -> Tensor:
    v = scale_by(scale, normalize_wide(z, *vectors))
    return softmax(v, out_dtype=v.dtype)


class _LinearBatchNormScaleSoftmaxTrain(torch.autograd.Function):
    """Gives y, and what its backward pass reads: z less a shift, mean, rstd, and the mean of that
    z."""

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
        y, z, mean, rstd, centre = output
        keep_outputs(ctx, mean, rstd, centre, differentiable=z)
        matrices = keep_for_product(ctx, x, weight, bias)
        ctx.beta_dtype = None if beta is None else beta.dtype
        # The gradient of scale alone reads beta.
        beta = beta if ctx.needs_input_grad[3] else None
        ctx.save_for_backward(*matrices, scale, gamma, beta, y, z, rstd, centre)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y, grad_z=None, *_):
        if grad_y is None and grad_z is None:
            return (None,) * 13
        x, weight, scale, gamma, beta, y, z, rstd, centre = saved
        grad_bias = grad_scale = grad_gamma = grad_beta = None
        if grad_y is not None:
            # Through v = b * scale to n = (z - mean) * rstd it is one affine map per column:
            # v = n * (gamma * scale) + beta * scale.
            factor = gamma
            if scale is not None:
                factor = scale.to(rstd.dtype).expand(rstd.shape)
                factor = factor if gamma is None else factor * gamma
            grad_v, options = differentiate_softmax(grad_y, y), (ctx.eps, composed)
            grads = differentiate_batch_norm(grad_v, z, centre, rstd, factor, *options)
            grad_z, sum_n, sum_1 = add(grads[0], grad_z), *grads[1:]
            if ctx.needs_input_grad[3]:
                columns = sum_n if gamma is None else sum_n * gamma
                columns = columns if beta is None else columns + sum_1 * beta
                grad_scale = sum_to(columns, scale)
            if gamma is not None:
                grad_gamma = scale_by(scale, sum_n).to(gamma.dtype)
            if ctx.beta_dtype is not None:
                grad_beta = scale_by(scale, sum_1).to(ctx.beta_dtype)
        with no_autocast(grad_z):
            grad_x, grad_weight = differentiate_matrices(ctx, grad_z, x, weight)
        if ctx.needs_input_grad[2]:
            grad_bias = torch.zeros_like(rstd, dtype=ctx.bias_dtype)
        grads = (grad_x, grad_weight, grad_bias, grad_scale, None, None, None)
        return *grads, grad_gamma, grad_beta, None, None, None, None


_FUNCTION = LinearBatchNorm(
    "linear_batch_norm_scale_softmax",
    ops.linear_batch_norm_scale_softmax_inference.default,
    _train_op,
    _LinearBatchNormScaleSoftmaxTrain,
    _find_saved,
    _run_parts,
    _run_wide,
    is_softmax=True,
)
