"""What the functions with a product and a batch norm do with their arguments, in one place."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .. import sharding
from ..checks import check_batch, check_dense, check_linear_batch_norm, check_updated
from ..reference import compute_dtype
from ..sharding import spans_processes
from ..weights import accumulated
from ..weights.splits import find_split
from ._arguments import (
    check_batch_norm,
    check_parts,
    check_rows,
    check_tensors,
    differentiates,
    name_out,
    no_autocast,
    read_momentum,
    read_number,
    requires_grad,
    scales_rows,
    softmax_dtype,
    take_matrices,
    take_scale,
)
from ._batch_norm import batch_norm
from ._composed_batch_norm import compose_batch_norm
from ._derivatives import is_forward_mode, is_mapped
from ._derived import linear, native
from ._linear_scale_leaky_relu import linear_scale_leaky_relu
from ._other_layouts import STRIDED
from ._product import compose_product
from ._unchanged import apply_in_training, call_or_restore

# The tensors of a training op, in their order.
_NAMES = ("x", "weight", "bias", "scale", "running_mean", "running_var", "num_batches_tracked")
_NAMES += ("gamma", "beta")


class LinearBatchNorm(NamedTuple):
    """One of the functions.

    gradient: the torch.autograd.Function in training.
    find_saved: what that saves, by name, from (x, weight, scale, gamma, beta).
    run_parts: y from (z, scale, normalize, tracked, out_dtype), of parts that run one by one.
    run_wide: y from (z, scale, *statistics, gamma, beta, eps), in the dtype of z, differentiably.
    """

    op: str
    inference_op: Callable
    train_op: Callable
    gradient: type[torch.autograd.Function]
    find_saved: Callable
    run_parts: Callable
    run_wide: Callable
    is_softmax: bool


def run_linear_batch_norm(
    function: LinearBatchNorm,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: float | Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Tensor | None,
    process_group: "torch.distributed.ProcessGroup | None",
    precision: str | None,
    out_dtype: torch.dtype | None,
    weight_split: Tensor | None,
) -> Tensor:
    op = function.op
    check_tensors(op, x, weight, bias)
    tracked = (running_mean, running_var, num_batches_tracked)
    momentum, eps = read_momentum(op, momentum), read_number(op, "eps", eps)
    check_batch_norm(op, *tracked, gamma, beta, training, eps)
    if function.is_softmax:
        out_dtype = softmax_dtype(x, out_dtype)
    x, weight, bias, precision = take_matrices(op, x, weight, bias, precision)
    asked = out_dtype
    scale, out_dtype = take_scale(op, scale, x, out_dtype)
    may_mix = not (training or function.is_softmax)
    if training and spans_processes(op, process_group, x, weight):
        options = (False, momentum, asked, may_mix)  # one row may be all that this process has
        check_parts(op, x, weight, bias, tracked, (gamma, beta), *options)
        check_updated(op, num_batches_tracked, momentum, *tracked[:2], x)
        norm = (gamma, beta, momentum, eps)
        options = {"precision": precision, "weight_split": weight_split}
        matrices = (x, weight, bias, scale)
        return _run_over(function, process_group, *matrices, tracked, norm, out_dtype, options)
    if x.layout is not STRIDED or scales_rows(scale, x, weight):
        options = (training, momentum, asked, may_mix)
        check_parts(op, x, weight, bias, tracked, (gamma, beta), *options)
        if function.is_softmax:
            check_batch(op, x, "(M, K)")
        z = linear(x, weight, bias, precision=precision, weight_split=weight_split)
        dtype = out_dtype if function.is_softmax else out_dtype or x.dtype
        norm = (gamma, beta, training, momentum, eps)
        return _run_parts(function, z, scale, tracked, norm, dtype)
    matrices, out = (x, weight, bias, scale), name_out(x, out_dtype)
    asking = (*matrices, gamma, beta)
    if training:
        check_rows(op, x, weight)
        if is_forward_mode() or is_mapped():
            norm = (gamma, beta, momentum, eps)
            return _compose_training(function, *matrices, tracked, norm, precision, out_dtype)
        arguments = (*matrices, *tracked, gamma, beta, momentum, eps, precision)
        if requires_grad(*asking):
            named = dict(zip(_NAMES, arguments, strict=False))
            if native.serves_training(op, named):
                given = (*arguments, out)
                return call_or_restore(tracked, native.train, op, weight, precision, given)
            saved = function.find_saved(x, weight, scale, gamma, beta)
            return apply_in_training(op, function.gradient, (*arguments, out), tracked, saved)
        split = find_split(weight, precision, weight_split)
        y, _, _, _ = function.train_op(*arguments, weight_split=split, out=out)
        return y
    if not is_forward_mode() and not differentiates(*asking):
        split = find_split(weight, precision, weight_split)
        arguments = (*matrices, running_mean, running_var, gamma, beta, eps, precision)
        return function.inference_op(*arguments, weight_split=split, out=out)
    # The gradients of scale and gamma need z, which the fused op does not give, so its parts run
    # instead, behind its checks.
    check_dense(op, x)
    if function.is_softmax:
        check_batch(op, x, "(M, K)")
    vectors = (bias, scale, running_mean, running_var, gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype, may_mix)
    z = linear(x, weight, bias, precision=precision, out_dtype=compute_dtype(x))
    y = function.run_wide(z, scale, running_mean, running_var, gamma, beta, eps)
    return y.to(out_dtype or x.dtype)


def _run_over(
    function, process_group, x, weight, bias, scale, tracked, norm, out_dtype, options
) -> Tensor:
    """Over the processes of a group: the product with all that stands in front of the batch norm,
    which merges the statistics, and what follows."""
    dtype = out_dtype or x.dtype
    if scale is not None and not function.is_softmax and not scales_rows(scale, x, weight):
        z = linear_scale_leaky_relu(x, weight, bias, scale, 1.0, out_dtype=dtype, **options)
        scale = None
    else:
        z = linear(x, weight, bias, **options)

    def normalize(v):
        return sharding.normalize_over(function.op, (process_group,), v, tracked, *norm)

    dtype = out_dtype if function.is_softmax else dtype
    return function.run_parts(z, scale, normalize, tracked, dtype)


def _run_parts(function, z, scale, tracked, norm, out_dtype) -> Tensor:
    """In a function of its own, since Python reads variables that a closure captures more slowly
    in all of the function around it."""
    running_mean, running_var, count = tracked
    training = norm[2]

    def normalize(v):
        return batch_norm(v, running_mean, running_var, *norm, num_batches_tracked=count)

    return function.run_parts(z, scale, normalize, tracked if training else (), out_dtype)


def _compose_training(
    function, x, weight, bias, scale, tracked, norm, precision, out_dtype
) -> Tensor:
    """y by ops that have derivatives in forward mode, behind the checks of the fused op."""
    op, (gamma, beta, momentum, _) = function.op, norm
    accumulated.refuse_recorded_buffer(weight)
    check_dense(op, x)
    check_batch(op, x, "(M, K)")
    vectors = (bias, scale, *tracked[:2], gamma, beta)
    check_linear_batch_norm(op, x, weight, *vectors, precision, out_dtype)
    check_updated(op, tracked[2], momentum, *tracked[:2], x)
    with no_autocast(x):
        z = compose_product(x, weight, bias, precision)

        def normalize(v):
            return compose_batch_norm(v, *tracked, *norm)

        y = function.run_parts(z, scale, normalize, tracked, z.dtype)
    return y.to(out_dtype or x.dtype)
