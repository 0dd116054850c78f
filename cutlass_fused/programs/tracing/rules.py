"""How the ops that PyTorch dispatches are written in words.

RULES[op](builder, *arguments): the arguments of the op, with what stands for a tensor in its place,
and numbers as floats; the result is what stands for that of the op.
"""

import math

import torch

from .builder import Builder

_aten = torch.ops.aten
_LARGEST = torch.finfo(torch.float32).max


def _word(name):
    def rule(builder: Builder, *arguments):
        return builder.add(name, *arguments)

    return rule


def _with_alpha(name):
    """add and sub: the second argument times alpha."""

    def rule(builder, x, y, alpha=1.0):
        return builder.add(name, x, builder.add("mul", y, alpha))

    return rule


def _rsub(builder, x, y, alpha=1.0):
    return builder.add("sub", y, builder.add("mul", x, alpha))


def _add_product(name):
    def rule(builder, x, a, b, value=1.0):
        return builder.add("add", x, builder.add("mul", builder.add(name, a, b), value))

    return rule


def _gelu(builder, x, approximate="none"):
    return builder.add("gelu" if approximate == "none" else "gelu_tanh", x)


def _clamp(builder, x, low=None, high=None):
    # Of one number alone, which is NaN, clamp makes no bound; clamp_min and clamp_max do.
    if (low is None or high is None) and any(
        each is not None and each != each for each in (low, high)
    ):
        return x
    return _bound(builder, x, low, high)


def _bound(builder, x, low=None, high=None):
    low = -math.inf if low is None else low
    return builder.add("clamp", x, low, math.inf if high is None else high)


def _where(builder, condition, x, y):
    if builder.is_truth(x) and builder.is_truth(y):
        x = builder.add("and", condition, x)
        return builder.add("or", x, builder.add("and", builder.add("not", condition), y))
    return builder.add("where", condition, x, y)


def _masked_fill(builder, x, mask, value):
    return builder.add("where", mask, value, x)


def _is_nan(builder, x):
    return builder.add("ne", x, x)


def _is_infinite(builder, x):
    return builder.add("eq", builder.add("abs", x), math.inf)


def _lerp(builder, x, end, weight):
    """PyTorch takes the end that is nearer, so that both are met exactly."""
    span = builder.add("sub", end, x)
    near = builder.add("add", x, builder.add("mul", weight, span))
    far = builder.add("mul", span, builder.add("sub", 1.0, weight))
    far = builder.add("sub", end, far)
    if isinstance(weight, float):
        return near if abs(weight) < 0.5 else far
    is_near = builder.add("lt", builder.add("abs", weight), 0.5)
    return builder.add("where", is_near, near, far)


def _log_sigmoid(builder, x):
    return builder.add("log_sigmoid", x), 0.0  # and a buffer, which the backward pass may read


def _elu(builder, x, alpha=1.0, scale=1.0, input_scale=1.0):
    return builder.add("elu", x, alpha, scale, input_scale)


def _celu(builder, x, alpha=1.0):
    return builder.add("elu", x, alpha, 1.0, 1.0 / alpha)


def _softplus(builder, x, beta=1.0, threshold=20.0):
    return builder.add("softplus", x, beta, threshold)


def _nan_to_num(builder, x, nan=0.0, posinf=None, neginf=None):
    high = _LARGEST if posinf is None else posinf
    low = -_LARGEST if neginf is None else neginf
    y = builder.add("where", builder.add("eq", x, math.inf), high, x)
    y = builder.add("where", builder.add("eq", x, -math.inf), low, y)
    return builder.add("where", _is_nan(builder, x), 0.0 if nan is None else nan, y)


def _log_add_exp(builder, x, y):
    small = builder.add("neg", builder.add("abs", builder.add("sub", x, y)))
    correction = builder.add("log1p", builder.add("exp", small))
    total = builder.add("add", builder.add("maximum", x, y), correction)
    # Two infinities of one sign have no difference.
    is_same = builder.add("and", _is_infinite(builder, x), builder.add("eq", x, y))
    return builder.add("where", is_same, x, total)


def _x_log_y(builder, x, y):
    product = builder.add("mul", x, builder.add("log", y))
    is_zero = builder.add("and", builder.add("eq", x, 0.0), builder.add("eq", y, y))
    return builder.add("where", is_zero, 0.0, product)


def _ignore_nan(name):
    """fmax and fmin."""

    def rule(builder, x, y):
        both = builder.add(name, x, y)
        both = builder.add("where", _is_nan(builder, y), x, both)
        return builder.add("where", _is_nan(builder, x), y, both)

    return rule


def _fraction(builder, x):
    return builder.add("sub", x, builder.add("trunc", x))


def _heaviside(builder, x, at_zero):
    is_positive = builder.add("gt", x, 0.0)
    return builder.add("where", builder.add("eq", x, 0.0), at_zero, is_positive)


def _hardshrink(builder, x, width=0.5):
    is_small = builder.add("le", builder.add("abs", x), width)
    return builder.add("where", is_small, 0.0, x)


def _softshrink(builder, x, width=0.5):
    moved = builder.add("mul", builder.add("sign", x), width)
    is_small = builder.add("le", builder.add("abs", x), width)
    return builder.add("where", is_small, 0.0, builder.add("sub", x, moved))


def _leaky_relu(builder, x, slope=0.01):
    return builder.add("leaky_relu", x, slope)


def _hardtanh(builder, x, low=-1.0, high=1.0):
    return builder.add("hardtanh", x, low, high)


def _logical(name):
    """Of truths, and of numbers, which are true unless they are 0."""

    def rule(builder, *arguments):
        truths = [
            each if builder.is_truth(each) else builder.add("ne", each, 0.0) for each in arguments
        ]
        return builder.add(name, *truths)

    return rule


def _bitwise(name):
    def rule(builder, *arguments):
        return builder.add(name, *arguments) if all(map(builder.is_truth, arguments)) else None

    return rule


def _pow(builder, x, exponent):
    return 1.0 if exponent == 0.0 else x if exponent == 1.0 else builder.add("pow", x, exponent)


RULES = {
    getattr(_aten, name).default: _word(name)
    for name in (
        *("neg", "abs", "sqrt", "rsqrt", "reciprocal"),
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("sigmoid", "erf", "erfc", "floor", "ceil", "round", "trunc", "sign", "relu"),
        *("silu", "hardswish", "hardsigmoid", "mish", "threshold", "maximum", "minimum"),
    )
}
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"):
    RULES[getattr(_aten, _name).Scalar] = RULES[getattr(_aten, _name).Tensor] = _word(_name)
for _name in ("mul", "div"):
    RULES[getattr(_aten, _name).Scalar] = RULES[getattr(_aten, _name).Tensor] = _word(_name)
for _name in ("add", "sub"):
    RULES[getattr(_aten, _name).Scalar] = _with_alpha(_name)
    RULES[getattr(_aten, _name).Tensor] = _with_alpha(_name)
for _name in ("and", "or", "xor"):
    RULES[getattr(_aten, f"logical_{_name}").default] = _logical(_name)
    RULES[getattr(_aten, f"bitwise_{_name}").Tensor] = _bitwise(_name)
RULES |= {_aten.clamp.default: _clamp, _aten.clamp.Tensor: _bound}
for _overload in (_aten.clamp_min.default, _aten.clamp_min.Tensor):
    RULES[_overload] = _bound
for _overload in (_aten.clamp_max.default, _aten.clamp_max.Tensor):
    RULES[_overload] = lambda builder, x, high: _bound(builder, x, None, high)
RULES |= {
    _aten.rsub.Scalar: _rsub,
    _aten.rsub.Tensor: _rsub,
    _aten.addcmul.default: _add_product("mul"),
    _aten.addcdiv.default: _add_product("div"),
    _aten.pow.Tensor_Scalar: _pow,
    _aten.pow.Tensor_Tensor: _word("pow"),
    _aten.pow.Scalar: _word("pow"),
    _aten.remainder.Scalar_Tensor: _word("remainder"),
    _aten.gelu.default: _gelu,
    _aten.leaky_relu.default: _leaky_relu,
    _aten.elu.default: _elu,
    _aten.celu.default: _celu,
    _aten.softplus.default: _softplus,
    _aten.hardtanh.default: _hardtanh,
    _aten._prelu_kernel.default: _word("prelu"),
    _aten.log_sigmoid_forward.default: _log_sigmoid,
    _aten.where.self: _where,
    _aten.masked_fill.Scalar: _masked_fill,
    _aten.masked_fill.Tensor: _masked_fill,
    _aten.nan_to_num.default: _nan_to_num,
    _aten.logaddexp.default: _log_add_exp,
    _aten.xlogy.Tensor: _x_log_y,
    _aten.xlogy.Scalar_Other: _x_log_y,
    _aten.xlogy.Scalar_Self: _x_log_y,
    _aten.fmax.default: _ignore_nan("maximum"),
    _aten.fmin.default: _ignore_nan("minimum"),
    _aten.frac.default: _fraction,
    _aten.heaviside.default: _heaviside,
    _aten.sgn.default: _word("sign"),
    _aten.hardshrink.default: _hardshrink,
    _aten.softshrink.default: _softshrink,
    _aten.lerp.Scalar: _lerp,
    _aten.lerp.Tensor: _lerp,
    _aten.isnan.default: _is_nan,
    _aten.isinf.default: _is_infinite,
    _aten.logical_not.default: _logical("not"),
    _aten.bitwise_not.default: _bitwise("not"),
}
