"""Faults that a fused kernel can have, planted into the reference; the judge must reject each.

A fault is a function from a call to the result that the faulty kernel would give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from accuracy import round_to_tf32
from calls import BATCH_NORM, LEAKY, OPS, Call
from cases import (
    BF16,
    BF16_FP32,
    FP16,
    FP16_FP32,
    IEEE,
    NUMERICS,
    TF32,
    Numerics,
    Shape,
    make_call,
    make_large_mean_call,
    make_special_call,
)
from torch.nn import functional as F

RAGGED = Shape(37, 77, 51, "odd everywhere")
LONG = Shape(33, 65, 512, "K long enough for rounding errors to add up")
SIXTEEN_BIT = (FP16, BF16)
WIDE = (FP16_FP32, BF16_FP32, IEEE, TF32)


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    spoil: Callable[[Call], torch.Tensor]
    ops: tuple[str, ...] = OPS
    numerics: tuple[Numerics, ...] = NUMERICS
    make: Callable[[str, Numerics], Call] = lambda op, numerics: make_call(op, RAGGED, numerics)


# ---- arguments ----


def use_default_slope(call):
    return call.change(negative_slope=0.01).refer()


def use_relu(call):
    return call.change(negative_slope=0.0).refer()


def take_maximum(call):
    """max(v, slope * v): right for slopes up to 1 only."""
    v = call.change(negative_slope=1.0).refer()
    return torch.maximum(v, v * call.negative_slope)


def make_slope_positive(call):
    return call.change(negative_slope=abs(call.negative_slope)).refer()


def drop(name):
    return lambda call: call.change(**{name: None}).refer()


def drop_multiplier(call):
    return call.change(multiplier=1.0).refer()


def broadcast_first(name):
    return lambda call: call.change(**{name: getattr(call, name)[:1].expand(77).clone()}).refer()


def shift_columns(name):
    return lambda call: call.change(**{name: getattr(call, name).roll(1)}).refer()


# ---- order of the tail ----


def widen(call):
    """The call with float32 arithmetic before the rounding of its result."""
    return call.map_tensors(torch.Tensor.float).change(out_dtype=None)


def scale_before_bias(call):
    full = widen(call)
    z = F.linear(full.x, full.weight) * full.scale + full.bias
    return F.leaky_relu(z * call.multiplier, call.negative_slope).to(call.result_dtype)


def activate_before_scale(call):
    full = widen(call)
    z = F.leaky_relu(F.linear(full.x, full.weight, full.bias), call.negative_slope)
    return (z * full.scale * call.multiplier).to(call.result_dtype)


def finish_batch_norm(call, z, denominator):
    full = widen(call)
    y = (z * full.scale - full.running_mean) / denominator * full.gamma + full.beta
    return y.to(call.result_dtype)


def add_eps_outside_root(call):
    full = widen(call)
    z = F.linear(full.x, full.weight, full.bias)
    return finish_batch_norm(call, z, full.running_var.sqrt() + call.eps)


def forget_eps(call):
    return call.change(eps=0.0).refer()


def forget_root(call):
    full = widen(call)
    z = F.linear(full.x, full.weight, full.bias)
    return finish_batch_norm(call, z, full.running_var + call.eps)


def fold_mean(call):
    """One multiplication and one shift, beta - mean * a: it cancels where the mean is large."""
    full = widen(call)
    a = full.gamma / torch.sqrt(full.running_var + call.eps)
    z = F.linear(full.x, full.weight, full.bias)
    return (z * a + (full.beta - full.running_mean * a)).to(call.result_dtype)


# ---- rounding ----


def round_before_bias(call):
    """The product goes through 16-bit memory before bias and tail."""
    full = widen(call)
    product = F.linear(full.x, full.weight).to(call.x.dtype).float()
    exact = full.change(x=torch.eye(call.m), weight=product.T.contiguous())
    return exact.refer().to(call.result_dtype)


def round_before_tail(call):
    """z goes through 16-bit memory before scale, statistics and activation."""
    full = widen(call)
    z = F.linear(full.x, full.weight, full.bias).to(call.x.dtype).float()
    exact = full.change(x=torch.eye(call.m), weight=z.T.contiguous(), bias=None)
    return exact.refer().to(call.result_dtype)


def sum_in_16_bits(call):
    full = widen(call)
    product = torch.zeros(call.m, full.weight.shape[0])
    for k in range(0, call.k, 16):
        product += full.x[:, k : k + 16] @ full.weight[:, k : k + 16].T
        product = product.to(call.x.dtype).float()
    exact = full.change(x=torch.eye(call.m), weight=product.T.contiguous())
    return exact.refer().to(call.result_dtype)


def map_operands(function):
    return lambda call: call.change(x=function(call.x), weight=function(call.weight)).refer()


def truncate_to_tf32(x):
    """What tensor cores do with raw fp32 bits."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def round_to_bf16(x):
    return x.bfloat16().float()


# ---- memory ----


def leave_unwritten(index, garbage):
    def spoil(call):
        result = call.refer()
        result[index] = garbage
        return result

    return spoil


def use_earlier_weight(call):
    return call.change(weight=call.weight.roll(1, 0) * 1.125).refer()


def drop_last_of_k(call):
    return call.change(x=call.x[:, :-1], weight=call.weight[:, :-1]).refer()


def shift_x_by_one(call):
    """Rows read at an aligned address instead of their own."""
    return call.change(x=call.x.flatten().roll(-1).view_as(call.x)).refer()


# ---- special values ----


def swallow_nan(call):
    return call.refer().nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def turn_infinities_into_nan(call):
    """What every split does: lo(inf) = inf - inf."""
    result = call.refer()
    return torch.where(torch.isinf(result), torch.nan, result)


def flip_infinities(call):
    result = call.refer()
    return torch.where(torch.isinf(result), -result, result)


def spread_nan(call):
    """A NaN row reaches its neighbour."""
    result = call.refer()
    result[5, 30] = torch.nan
    return result


def make_steep(op, numerics):
    return make_call(op, RAGGED, numerics, slope=2.0)


def make_negative_slope(op, numerics):
    return make_call(op, RAGGED, numerics, slope=-0.5)


def make_positive(op, numerics):
    return make_call(op, LONG, numerics, distribution="positive")


def make_long(op, numerics):
    return make_call(op, LONG, numerics)


def make_centred(op, numerics):
    return make_large_mean_call(numerics)


SCALED = (LEAKY, BATCH_NORM)
FAULTS = (
    Fault("slope 0.01 instead of 0.1", use_default_slope, (LEAKY,)),
    Fault("ReLU instead of LeakyReLU", use_relu, (LEAKY,)),
    Fault("maximum instead of a choice, slope 2", take_maximum, (LEAKY,), make=make_steep),
    Fault("sign of the slope lost", make_slope_positive, (LEAKY,), make=make_negative_slope),
    Fault("bias missing", drop("bias")),
    Fault("scale ignored", drop("scale"), SCALED),
    Fault("multiplier ignored", drop_multiplier, (LEAKY,)),
    Fault("gamma ignored", drop("gamma"), (BATCH_NORM,)),
    Fault("beta ignored", drop("beta"), (BATCH_NORM,)),
    Fault("bias of column 0 everywhere", broadcast_first("bias")),
    Fault("scale of column 0 everywhere", broadcast_first("scale"), SCALED),
    Fault("bias one column off", shift_columns("bias")),
    Fault("scale one column off", shift_columns("scale"), SCALED),
    Fault("mean one column off", shift_columns("running_mean"), (BATCH_NORM,)),
    Fault("variance one column off", shift_columns("running_var"), (BATCH_NORM,)),
    Fault("scale applied before the bias", scale_before_bias, (LEAKY,)),
    Fault("activation before the scale", activate_before_scale, (LEAKY,)),
    Fault("eps outside the root", add_eps_outside_root, (BATCH_NORM,)),
    Fault("eps forgotten", forget_eps, (BATCH_NORM,)),
    Fault("root forgotten", forget_root, (BATCH_NORM,)),
    Fault("mean folded into one shift", fold_mean, (BATCH_NORM,), WIDE, make_centred),
    Fault("product rounded before the bias", round_before_bias, numerics=SIXTEEN_BIT),
    Fault("z rounded before the tail", round_before_tail, SCALED, SIXTEEN_BIT),
    Fault("sum in 16 bits", sum_in_16_bits, numerics=(*SIXTEEN_BIT, FP16_FP32, BF16_FP32)),
    Fault(
        "TF32 operands truncated",
        map_operands(truncate_to_tf32),
        numerics=(TF32,),
        make=make_positive,
    ),
    Fault("TF32 where IEEE is asked", map_operands(round_to_tf32), numerics=(IEEE,)),
    Fault("one bf16 product where TF32 is asked", map_operands(round_to_bf16), numerics=(TF32,)),
    Fault("last row NaN", leave_unwritten(-1, torch.nan)),
    Fault("last row of an earlier result", leave_unwritten(-1, 1.0)),
    Fault("last column NaN", leave_unwritten((slice(None), -1), torch.nan)),
    Fault("last column of an earlier result", leave_unwritten((slice(None), -1), 1.0)),
    Fault("last element zero", leave_unwritten((-1, -1), 0.0)),
    Fault("result of an earlier weight", use_earlier_weight),
    Fault("last element of K dropped", drop_last_of_k),
    Fault("rows read one element off", shift_x_by_one),
    Fault("NaN swallowed", swallow_nan, make=make_special_call),
    Fault("infinities become NaN", turn_infinities_into_nan, make=make_special_call),
    Fault("infinities change sign", flip_infinities, make=make_special_call),
    Fault("NaN in a finite row", spread_nan, make=make_special_call),
)
