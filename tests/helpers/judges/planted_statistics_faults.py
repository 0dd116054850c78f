"""Faults of batch norm in training and of softmax, planted into the reference; the judge must
reject each.

A fault is a function from a call to everything that the faulty kernel would write, by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from bounds_statistics import compute_logits, compute_mean_and_variance, compute_values
from calls import (
    NORM,
    NORM_SOFTMAX,
    NORM_SOFTMAX_TRAIN,
    NORM_TRAIN,
    SCALE_NORM_TRAIN,
    SOFTMAX,
    SOFTMAX_OPS,
    STATISTICS_OPS,
    TRAIN_OPS,
    Call,
)
from cases import BF16_FP32, FP16_FP32, IEEE, NUMERICS, TF32, Numerics, Shape
from cases_statistics import (
    make_distant_call,
    make_special_statistics_call,
    make_statistics_call,
)

RAGGED = Shape(37, 77, 51, "odd everywhere")
# Statistics in fp32: in 16 bits a running variance hardly tells M from M - 1.
WIDE = (FP16_FP32, BF16_FP32, IEEE, TF32)
Results = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    spoil: Callable[[Call], Results]
    ops: tuple[str, ...]
    numerics: tuple[Numerics, ...] = NUMERICS
    make: Callable[[str, Numerics], Call] = lambda op, numerics: make_statistics_call(
        op, RAGGED, numerics
    )


# ---- arguments ----


def change(**arguments):
    return lambda call: call.change(**arguments).refer_all()


def roll(name):
    return lambda call: call.change(**{name: getattr(call, name).roll(1)}).refer_all()


def swap_momentum(call):
    return call.change(momentum=1 - call.momentum).refer_all()


def count_late(call):
    """1 / num_batches_tracked as it was before this batch."""
    return call.change(momentum=1 / float(call.num_batches_tracked)).refer_all()


def make_cumulative(op, numerics):
    return make_statistics_call(op, RAGGED, numerics, momentum=None)


# ---- statistics ----


def replace(call: Call, **results) -> Results:
    """The right results but for these, in the dtypes that they must have."""
    right = call.refer_all()
    return right | {name: value.to(right[name].dtype) for name, value in results.items()}


def finish(call: Call, values, mean, rstd) -> torch.Tensor:
    """y from other statistics, in float64."""
    call = call.in_float64()
    y = (values - mean) * rstd * call.gamma + call.beta
    return torch.softmax(y * call.scale, dim=-1) if call.op in SOFTMAX_OPS else y


def find(call: Call):
    values = compute_values(call)
    return values, *compute_mean_and_variance(call, values)


def put_eps_outside(call):
    values, mean, variance = find(call)
    rstd = 1 / (variance.sqrt() + call.eps)
    spoilt = {"y": finish(call, values, mean, rstd)}
    if call.op in TRAIN_OPS:
        spoilt["rstd"] = rstd
    return replace(call, **spoilt)


def use_statistics(function):
    """y, mean, rstd and the running statistics, all from the wrong mean and variance."""

    def spoil(call):
        values = compute_values(call)
        mean, variance, unbiased = function(values)
        rstd = 1 / torch.sqrt(variance + call.eps)
        momentum = call.momentum
        return replace(
            call,
            y=finish(call, values, mean, rstd),
            mean=mean,
            rstd=rstd,
            running_mean=(1 - momentum) * call.running_mean + momentum * mean,
            running_var=(1 - momentum) * call.running_var + momentum * unbiased,
        )

    return spoil


def leave_out_last_row(values):
    part = values[:-1]
    return part.mean(0), part.var(0, correction=0), part.var(0)


def count_padding(values):
    """Rows of a tile beyond the batch are zeros that count."""
    padded = torch.cat([values, values.new_zeros(-len(values) % 16, values.shape[1])])
    return padded.mean(0), padded.var(0, correction=0), padded.var(0)


def divide_by_padding(values):
    ratio = len(values) / (len(values) + -len(values) % 16)
    variance = values.var(0, correction=0) * ratio
    return values.mean(0), variance, values.var(0) * ratio


def use_unbiased(values):
    return values.mean(0), values.var(0), values.var(0)


def merge_without_distance(values):
    """Tiles' squared deviations added up, without those of their means from each other."""
    tiles = values.split(16)
    squares = sum(tile.var(0, correction=0) * len(tile) for tile in tiles)
    return values.mean(0), squares / len(values), squares / (len(values) - 1)


def subtract_squares(values):
    """E[z^2] - E[z]^2 in fp32."""
    z = values.float()
    mean = z.mean(0)
    variance = (z.square().mean(0) - mean.square()).clamp(min=0).double()
    return mean.double(), variance, variance * len(z) / (len(z) - 1)


def update_with_biased(call):
    _, _, variance = find(call)
    momentum = call.momentum
    return replace(call, running_var=(1 - momentum) * call.running_var + momentum * variance)


def use_running(call):
    """Normalized as in eval."""
    mean, variance = call.running_mean.double(), call.running_var.double()
    rstd = 1 / torch.sqrt(variance + call.eps)
    return replace(call, y=finish(call, compute_values(call), mean, rstd))


def use_batch(call):
    """Normalized as in training."""
    values = compute_values(call)
    rstd = 1 / torch.sqrt(values.var(0, correction=0) + call.eps)
    return replace(call, y=finish(call, values, values.mean(0), rstd))


def normalize_rows(call):
    """Statistics of each row instead of each column."""
    values = compute_values(call)
    mean, variance = values.mean(1, keepdim=True), values.var(1, correction=0, keepdim=True)
    return replace(call, y=finish(call, values, mean, 1 / torch.sqrt(variance + call.eps)))


def forget_scale(call):
    """Statistics of z, but applied to its product with the scale."""
    z = compute_values(call.change(scale=None))
    mean, variance = z.mean(0), z.var(0, correction=0)
    rstd = 1 / torch.sqrt(variance + call.eps)
    return replace(call, y=finish(call, compute_values(call), mean, rstd), mean=mean, rstd=rstd)


def fold_mean(call):
    """One multiplication and one shift, beta - mean * a, in fp32: it cancels."""
    right = call.refer_all()
    z = compute_values(call).float()
    a = right["rstd"] * call.gamma.float()
    y = z * a + (call.beta.float() - right["mean"] * a)
    return right | {"y": y.to(right["y"].dtype)}


def keep(name):
    return lambda call: call.refer_all() | {name: call.updated()[name].clone()}


def count(number):
    def spoil(call):
        return call.refer_all() | {"num_batches_tracked": call.num_batches_tracked + number}

    return spoil


# ---- softmax ----


def forget_maximum(call):
    logits = compute_logits(call).float()
    y = torch.exp(logits)
    return replace(call, y=y / y.sum(-1, keepdim=True))


def make_large_logits(op, numerics):
    """Above 88 fp32 exponentials overflow."""
    call = make_statistics_call(op, RAGGED, numerics)
    if op == SOFTMAX:
        return call.change(x=call.x + 100)
    return call.change(beta=call.beta + 100, scale=torch.full_like(call.scale, 1.5))


def scale_before_maximum(call):
    """exp2(v * log2(e) - max * log2(e)): each product is rounded at its own size."""
    logits = compute_logits(call).float() * 1.4426950408889634
    y = torch.exp2(logits - logits.amax(-1, keepdim=True))
    return replace(call, y=y / y.sum(-1, keepdim=True))


def make_far_logits(op, numerics):
    call = make_statistics_call(op, RAGGED, numerics)
    return call.change(x=call.x + 10_000)


def sum_over_rows(call):
    return replace(call, y=torch.softmax(compute_logits(call), dim=0))


def scale_behind(call):
    return replace(call, y=call.change(scale=None).refer_all()["y"] * call.scale)


def leave_out_last_exponential(call):
    y = torch.exp(compute_logits(call) - compute_logits(call).amax(-1, keepdim=True))
    return replace(call, y=y / y[:, :-1].sum(-1, keepdim=True))


def count_padding_exponentials(call):
    """Columns of an access beyond the row are zeros, exp(0 - max) each."""
    y = torch.exp(compute_logits(call))
    return replace(call, y=y / (y.sum(-1, keepdim=True) + 3))


def sum_in_16_bits(call):
    y = torch.exp(compute_logits(call) - compute_logits(call).amax(-1, keepdim=True))
    total = y.sum(-1, keepdim=True).bfloat16().double()
    return replace(call, y=y / total)


def add_up_to_more(call):
    right = call.refer_all()
    return right | {"y": right["y"] * (1 + 2.0**-22)}


def flush_small(call):
    """Probabilities below the smallest normal number of the output become 0."""
    y = call.refer_all()["y"]
    return replace(call, y=torch.where(y < 2.0**-14, 0.0, y))


def empty_rows_give_zero(call):
    y = call.refer_all()["y"]
    lost = torch.isneginf(call.x).all(-1, keepdim=True)
    return replace(call, y=torch.where(lost, 0.0, y))


def swallow_nan(call):
    return {
        name: t.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        for name, t in call.refer_all().items()
    }


# ---- memory ----


def leave_unwritten(name, index, garbage):
    def spoil(call):
        right = call.refer_all()
        right[name][index] = garbage
        return right

    return spoil


def make_distant(ratio, symmetric=False):
    return lambda op, numerics: make_distant_call(op, numerics, ratio, symmetric=symmetric)


BATCH = (SCALE_NORM_TRAIN, NORM_TRAIN)  # whose y is that of the batch norm
FUSED = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN)
SCALED = (*FUSED, NORM_SOFTMAX)
BEHIND_A_PRODUCT = (NORM_SOFTMAX_TRAIN, NORM_SOFTMAX)
NORMALIZED = (*TRAIN_OPS, NORM_SOFTMAX, NORM)
LAST_COLUMN = (..., -1)
FAULTS = (
    Fault("bias missing: the batch norm hides it", change(bias=None), FUSED),
    Fault("scale ignored", change(scale=None), SCALED),
    Fault("gamma ignored", change(gamma=None), NORMALIZED),
    Fault("beta ignored", change(beta=None), NORMALIZED),
    Fault("scale one column off", roll("scale"), SCALED),
    Fault("gamma one column off", roll("gamma"), NORMALIZED),
    Fault("running mean one column off", roll("running_mean"), NORMALIZED),
    Fault("running variance one column off", roll("running_var"), NORMALIZED),
    Fault("eps forgotten", change(eps=0.0), NORMALIZED),
    Fault("eps outside the root", put_eps_outside, NORMALIZED),
    Fault("momentum swapped", swap_momentum, TRAIN_OPS),
    Fault("momentum 0.1 where it is None", change(momentum=0.1), TRAIN_OPS, make=make_cumulative),
    Fault("counted after the factor is taken", count_late, TRAIN_OPS, make=make_cumulative),
    Fault("num_batches_tracked not counted", count(0), TRAIN_OPS),
    Fault("num_batches_tracked counted twice", count(2), TRAIN_OPS),
    Fault("running mean not updated", keep("running_mean"), TRAIN_OPS),
    Fault("running variance not updated", keep("running_var"), TRAIN_OPS),
    Fault("biased running variance", update_with_biased, TRAIN_OPS),
    Fault("unbiased variance of the batch", use_statistics(use_unbiased), TRAIN_OPS),
    Fault("last row outside the statistics", use_statistics(leave_out_last_row), TRAIN_OPS),
    Fault("rows of padding in the statistics", use_statistics(count_padding), TRAIN_OPS),
    Fault("variance divided by padded rows", use_statistics(divide_by_padding), TRAIN_OPS),
    Fault("tiles merged without their means", use_statistics(merge_without_distance), TRAIN_OPS),
    Fault("running statistics in training", use_running, TRAIN_OPS),
    Fault("statistics of the batch in eval", use_batch, (NORM_SOFTMAX, NORM)),
    Fault("statistics of rows", normalize_rows, NORMALIZED),
    Fault("statistics of z without scale", forget_scale, (SCALE_NORM_TRAIN,)),
    Fault("mean folded into a shift", fold_mean, BATCH, (IEEE,), make_distant(1e3, True)),
    Fault(
        "mean square minus square of the mean",
        use_statistics(subtract_squares),
        (NORM_TRAIN,),
        (IEEE,),
        make_distant(1e2),
    ),
    Fault("no maximum subtracted", forget_maximum, SOFTMAX_OPS, make=make_large_logits),
    Fault(
        "logits scaled in front of the maximum",
        scale_before_maximum,
        (SOFTMAX,),
        (IEEE,),
        make_far_logits,
    ),
    Fault("scale behind the softmax", scale_behind, BEHIND_A_PRODUCT),
    Fault("softmax along the columns", sum_over_rows, SOFTMAX_OPS),
    # In 16 bits the logits behind a product are too inexact to show what is missing.
    Fault("last exponential outside the sum", leave_out_last_exponential, (SOFTMAX,)),
    Fault("last exponential outside the sum", leave_out_last_exponential, BEHIND_A_PRODUCT, WIDE),
    Fault("exponentials of padding in the sum", count_padding_exponentials, (SOFTMAX,)),
    Fault("exponentials of padding in the sum", count_padding_exponentials, BEHIND_A_PRODUCT, WIDE),
    Fault("sum of a row in 16 bits", sum_in_16_bits, SOFTMAX_OPS, WIDE),
    Fault("rows add up to 1 and two eps", add_up_to_more, SOFTMAX_OPS, WIDE),
    Fault("small probabilities become 0", flush_small, SOFTMAX_OPS),
    Fault("NaN swallowed", swallow_nan, STATISTICS_OPS, make=make_special_statistics_call),
    Fault(
        "rows of -inf become 0",
        empty_rows_give_zero,
        (SOFTMAX,),
        make=make_special_statistics_call,
    ),
    Fault("last row NaN", leave_unwritten("y", -1, torch.nan), STATISTICS_OPS),
    Fault("last row of an earlier result", leave_unwritten("y", -1, 0.25), STATISTICS_OPS),
    Fault("last column NaN", leave_unwritten("y", LAST_COLUMN, torch.nan), STATISTICS_OPS),
    Fault("last column of an earlier result", leave_unwritten("y", LAST_COLUMN, 0.25), BATCH),
    Fault("last row of z NaN", leave_unwritten("z", -1, torch.nan), FUSED),
    *(
        Fault(f"last element of {name} zero", leave_unwritten(name, -1, 0.0), TRAIN_OPS)
        for name in ("mean", "rstd", "running_mean", "running_var")
    ),
)
