"""A-priori bounds behind statistics: what rounding may do to batch norm in training, to softmax and
to other ops along rows.

All of them are in float64, per element or per column, on the numbers that a call holds. `roundoff`
is the unit roundoff of the arithmetic behind the product; sums over rows and columns are in fp32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from accuracy import ROUNDOFF_FP32, accumulate_roundoff, bound_error, ulp
from calls import LEAKY, LINEAR, NORM_OPS, PRODUCT_OPS, SCALE_NORM_TRAIN, TRAIN_OPS, Call

from cutlass_fused.row_ops import ROW_OPS

# Threads that share the sum over a row: each adds that part of it one by one.
ROW_THREADS = 1024


def compute_values(call: Call) -> torch.Tensor:
    """What the statistics are made of: z, with its scale if that comes first, or x itself."""
    call = call.in_float64()
    if call.op not in PRODUCT_OPS:
        return call.x
    z = call.x @ call.weight.T
    z = z if call.bias is None else z + call.bias
    return z * call.scale if call.op == SCALE_NORM_TRAIN and call.scale is not None else z


def compute_mean_and_variance(call: Call, values: torch.Tensor):
    """Those that the op normalizes with."""
    if call.op not in TRAIN_OPS:
        return call.running_mean.double(), call.running_var.double()
    count = max(len(values), 1)
    mean = values.sum(0) / count
    return mean, (values - mean).square().sum(0) / count


def compute_logits(call: Call) -> torch.Tensor:
    """What stands under the exponential."""
    values, call = compute_values(call), call.in_float64()
    if call.op not in NORM_OPS:
        return values
    mean, variance = compute_mean_and_variance(call, values)
    v = (values - mean) / torch.sqrt(variance + call.eps)
    v = v if call.gamma is None else v * call.gamma
    v = v if call.beta is None else v + call.beta
    return v if call.scale is None else v * call.scale


def bound_values(call: Call, *arithmetic) -> torch.Tensor:
    """The error of `compute_values`, rounded to the dtype of the result; x has none.

    `arithmetic` are the arguments of `bound_error`.
    """
    if call.op not in PRODUCT_OPS:
        return torch.zeros((), dtype=torch.float64, device=call.x.device)
    tail_op = LEAKY if call.op == SCALE_NORM_TRAIN else LINEAR
    as_product = call.change(op=tail_op, multiplier=1.0, negative_slope=1.0)
    error = bound_error(as_product, *arithmetic)
    return error + ulp(error + compute_values(call).abs(), call.result_dtype) / 2


class Normalized(NamedTuple):
    """Bounds on the errors of the results of a batch norm."""

    y: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor
    rstd: torch.Tensor


def bound_normalized(call: Call, error: torch.Tensor, roundoff: float) -> Normalized:
    """The bound of batch norm on values that are wrong by up to `error`, per element."""
    values, call = compute_values(call), call.in_float64()
    mean, variance = compute_mean_and_variance(call, values)
    size, deviation = values.abs() + error, (values - mean).abs()
    mean_error = variance_error = torch.zeros_like(mean)
    if call.op in TRAIN_OPS:
        count = max(len(values), 1)
        sums = accumulate_roundoff(count + 2, ROUNDOFF_FP32)
        mean_error = (error + sums * size).sum(0) / count
        shift = error + mean_error
        variance_error = (2 * deviation * shift + shift**2).sum(0) / count + sums * variance
    rstd = 1 / torch.sqrt((variance - variance_error).clamp(min=0) + call.eps)
    rstd_error = rstd - 1 / torch.sqrt(variance + variance_error + call.eps)
    moved = error + mean_error + roundoff * (size + mean.abs())
    gamma = 1.0 if call.gamma is None else call.gamma.abs()
    beta = 0.0 if call.beta is None else call.beta.abs()
    y = gamma * (moved * rstd + deviation * rstd_error)
    y = y + accumulate_roundoff(8, roundoff) * (gamma * (deviation + moved) * rstd + beta)
    return Normalized(y, mean_error, variance_error, rstd_error)


def bound_softmax(call: Call, error: torch.Tensor, roundoff: float) -> torch.Tensor:
    """Relative, of a softmax where the errors in front of the scale are up to `error`."""
    logits = compute_logits(call)
    if call.op in NORM_OPS:
        error = error if call.scale is None else error * call.scale.double().abs()
        error = error + accumulate_roundoff(3, roundoff) * logits.abs()
    distance = logits.amax(-1, keepdim=True) - logits
    error = error + ROUNDOFF_FP32 * torch.where(torch.isposinf(distance), 0.0, distance)
    # An error multiplies its own exponential, and their sum by at most as much as the worst does.
    exponentials = torch.expm1(error + error.amax(-1, keepdim=True))
    return exponentials + accumulate_roundoff(logits.shape[-1] / ROW_THREADS + 64, ROUNDOFF_FP32)


def bound_rows(call: Call, y: torch.Tensor, roundoff: float) -> torch.Tensor:
    """Of an op along rows by its description; `y` is the truth."""
    row_op, call = ROW_OPS[call.op], call.in_float64()
    bound, size = row_op.bound, y.abs()
    if bound.size is not None:
        size = bound.size(call.x, *(getattr(call, name) for name in row_op.names))
    return size * accumulate_roundoff(bound.roundings + call.n / bound.threads, roundoff)
