"""linear_batch_norm_scale_softmax and its gradients."""

import torch
from torch import Tensor

from .._library import ops
from ..checks import check_batch, check_dense, check_linear_batch_norm
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
    softmax_dtype,
)
from ._batch_norm import batch_norm, differentiate_batch_norm, normalize_wide
from ._differentiable_once import differentiable_once
from ._linear import linear
from ._other_layouts import STRIDED
from ._product import differentiate_matrices, keep_for_product, scale_by, sum_to
from ._softmax import differentiate_softmax, softmax
from ._unchanged import apply_in_training, asks, call_or_restore

_inference_op = ops.linear_batch_norm_scale_softmax_inference.default
_train_op = ops.linear_batch_norm_scale_softmax_train.default


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
    precision: str | None = None,
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
            of x, but float32 where a float32 scale of shape (1,) or (N,) stands beside 16-bit x,
            and under autocast on a GPU.
        weight_split: what torch.ops.cutlass_fused.split_weight returned for this weight and
            precision, if the weight has not changed since: used where no gradient is asked for. See
            cutlass_fused.prepare, which keeps one with a module.

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
    op = "linear_batch_norm_scale_softmax"
    check_tensors(op, x, weight, bias)
    tracked = (running_mean, running_var, num_batches_tracked)
    momentum, eps = read_momentum(op, momentum), read_number(op, "eps", eps)
    check_batch_norm(op, *tracked, gamma, beta, training, eps)
    refuse_forward_ad(op)
    out_dtype = softmax_dtype(x, out_dtype)
    x, weight, bias = cast_for_autocast(x, weight, bias)
    precision = resolve_precision(precision, op, x.dtype)
    scale = make_scale(op, scale, x)
    asked, out_dtype = out_dtype, promote_with_scale(x, scale, out_dtype)
    if x.layout is not STRIDED or scales_rows(scale, x, weight):
        check_parts(op, x, weight, bias, tracked, (gamma, beta), training, momentum, asked)
        check_batch(op, x, "(M, K)")
        count = {"num_batches_tracked": num_batches_tracked}
        z = linear(x, weight, bias, precision=precision, weight_split=weight_split)

        def normalize():
            b = batch_norm(z, *tracked[:2], gamma, beta, training, momentum, eps, **count)
            return softmax(scale_by(scale, b), out_dtype=out_dtype)

        # The batch norm has moved the statistics where a hook raises in what follows it.
        return call_or_restore(tracked if training else (), normalize)
    matrices, out = (x, weight, bias, scale), name_out(x, out_dtype)
    asking = (*matrices, gamma, beta)
    if training:
        check_rows(op, x, weight)
        arguments = (*matrices, *tracked, gamma, beta, momentum, eps, precision)
        if requires_grad(*asking):
            saved = {
                "x": x if asks(weight) else None,
                "weight": weight if asks(x) else None,
                "scale": scale,
                "gamma": gamma,
                "beta": beta,
            }
            function, arguments = _LinearBatchNormScaleSoftmaxTrain, (*arguments, out)
            y = apply_in_training(op, function, arguments, tracked, saved)
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
    check_batch(op, x, "(M, K)")
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    z = linear(x, weight, bias, precision=precision, out_dtype=compute_dtype(x))
    b = normalize_wide(z, running_mean, running_var, gamma, beta, eps)
    v = scale_by(scale, b)
    return softmax(v, out_dtype=v.dtype).to(out_dtype or x.dtype)


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
        x, weight, bias, scale, _, _, _, gamma, beta, _, _, ctx.precision, _ = inputs
        y, z, mean, rstd, centre = output
        ctx.mark_non_differentiable(z, mean, rstd, centre)
        ctx.set_materialize_grads(False)
        matrices = keep_for_product(ctx, x, weight, bias)
        ctx.save_for_backward(*matrices, scale, gamma, beta, y, z, rstd, centre)

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, grad_y, *_):
        if grad_y is None:
            return (None,) * 13
        x, weight, scale, gamma, beta, y, z, rstd, centre = saved
        # Through v = b * scale to n = (z - mean) * rstd it is one affine map per column:
        # v = n * (gamma * scale) + beta * scale.
        factor = gamma
        if scale is not None:
            factor = scale.to(rstd.dtype).expand(rstd.shape)
            factor = factor if gamma is None else factor * gamma
        grad_z, sum_n, sum_1 = differentiate_batch_norm(
            differentiate_softmax(grad_y, y), z, centre, rstd, factor
        )
        grad_bias = grad_scale = grad_gamma = grad_beta = None
        with no_autocast(grad_y):
            grad_x, grad_weight = differentiate_matrices(ctx, grad_z, x, weight)
        if ctx.needs_input_grad[2]:
            grad_bias = torch.zeros_like(rstd, dtype=ctx.bias_dtype)
        if ctx.needs_input_grad[3]:
            columns = sum_n if gamma is None else sum_n * gamma
            columns = columns if beta is None else columns + sum_1 * beta
            grad_scale = sum_to(columns, scale)
        if gamma is not None:
            grad_gamma = scale_by(scale, sum_n).to(gamma.dtype)
        if beta is not None:
            grad_beta = scale_by(scale, sum_1).to(beta.dtype)
        grads = (grad_x, grad_weight, grad_bias, grad_scale, None, None, None)
        return *grads, grad_gamma, grad_beta, None, None, None, None
