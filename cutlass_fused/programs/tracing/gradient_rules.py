"""How the ops of gradients are written in words: those of PyTorch's activations, which its autograd
calls by name."""

import math

import torch

_aten = torch.ops.aten


def _threshold(b, grad, x, threshold):
    return b.add("where", b.add("le", x, threshold), 0.0, grad)


def _leaky_relu(b, grad, x, slope, is_result):
    return b.add("where", b.add("gt", x, 0.0), grad, b.add("mul", grad, slope))


def _prelu(b, grad, x, weight):
    is_positive = b.add("gt", x, 0.0)
    of_x = b.add("where", is_positive, grad, b.add("mul", weight, grad))
    return of_x, b.add("where", is_positive, 0.0, b.add("mul", x, grad))


def _hardtanh(b, grad, x, low, high):
    is_outside = b.add("or", b.add("le", x, low), b.add("ge", x, high))
    return b.add("where", is_outside, 0.0, grad)


def _sigmoid(b, grad, y):
    return b.add("mul", grad, b.add("mul", b.add("sub", 1.0, y), y))


def _tanh(b, grad, y):
    return b.add("mul", grad, b.add("sub", 1.0, b.add("mul", y, y)))


def _silu(b, grad, x):
    sigmoid = b.add("sigmoid", x)
    rest = b.add("mul", x, b.add("sub", 1.0, sigmoid))
    return b.add("mul", b.add("mul", grad, sigmoid), b.add("add", 1.0, rest))


def _mish(b, grad, x):
    tanh = b.add("tanh", b.add("softplus", x, 1.0, 20.0))
    slope = b.add("mul", b.add("sigmoid", x), b.add("sub", 1.0, b.add("mul", tanh, tanh)))
    return b.add("mul", grad, b.add("add", tanh, b.add("mul", x, slope)))


def _gelu(b, grad, x, approximate="none"):
    slope = _gelu_slope(b, x) if approximate == "none" else _gelu_tanh_slope(b, x)
    return b.add("mul", grad, slope)


def _gelu_slope(b, x):
    """cdf(x) + x pdf(x) of the normal distribution"""
    cdf = b.add("mul", b.add("erf", b.add("mul", x, math.sqrt(0.5))), 0.5)
    cdf = b.add("add", cdf, 0.5)
    pdf = b.add("exp", b.add("mul", b.add("mul", x, x), -0.5))
    pdf = b.add("mul", pdf, 1.0 / math.sqrt(2.0 * math.pi))
    return b.add("add", cdf, b.add("mul", x, pdf))


def _gelu_tanh_slope(b, x):
    """y = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3)"""
    root, cubic = math.sqrt(2.0 / math.pi), 0.044715
    square = b.add("mul", x, x)
    u = b.add("mul", b.add("add", x, b.add("mul", b.add("mul", square, x), cubic)), root)
    tanh = b.add("tanh", u)
    left = b.add("mul", b.add("add", tanh, 1.0), 0.5)
    of_u = b.add("mul", b.add("add", b.add("mul", square, 3.0 * cubic), 1.0), root)
    of_tanh = b.add("sub", 1.0, b.add("mul", tanh, tanh))
    right = b.add("mul", b.add("mul", b.add("mul", x, 0.5), of_tanh), of_u)
    return b.add("add", left, right)


def _hardswish(b, grad, x):
    inside = b.add("mul", grad, b.add("add", b.add("div", x, 3.0), 0.5))
    inside = b.add("where", b.add("lt", x, 3.0), inside, grad)
    return b.add("where", b.add("le", x, -3.0), 0.0, inside)


def _hardsigmoid(b, grad, x):
    is_inside = b.add("and", b.add("gt", x, -3.0), b.add("lt", x, 3.0))
    return b.add("where", is_inside, b.add("mul", grad, 1.0 / 6.0), 0.0)


def _softplus(b, grad, x, beta, threshold):
    scaled = b.add("mul", x, beta)
    inside = b.add("mul", grad, b.add("sigmoid", scaled))
    return b.add("where", b.add("gt", scaled, threshold), grad, inside)


def _log_sigmoid(b, grad, x, buffer):
    return b.add("mul", grad, b.add("sigmoid", b.add("neg", x)))


def _elu(b, grad, alpha, scale, input_scale, is_result, x):
    positive = b.add("mul", grad, scale)
    if is_result:  # x is then the result
        slope = b.add("mul", b.add("add", x, alpha * scale), input_scale)
    else:
        # Without infinities where x is positive, which a second derivative would multiply by 0. The
        # scale of the input is negative behind a CELU of a negative alpha.
        low, high = (-math.inf, 0.0) if input_scale >= 0.0 else (0.0, math.inf)
        power = b.add("exp", b.add("clamp", b.add("mul", x, input_scale), low, high))
        slope = b.add("mul", power, input_scale * alpha * scale)
    negative = b.add("mul", grad, slope)
    return b.add("where", b.add("le", x, 0.0), negative, positive)


def _shrink(b, grad, x, width):
    return b.add("where", b.add("le", b.add("abs", x), width), 0.0, grad)


GRADIENT_RULES = {
    _aten.hardshrink_backward.default: _shrink,
    _aten.softshrink_backward.default: _shrink,
    _aten.threshold_backward.default: _threshold,
    _aten.leaky_relu_backward.default: _leaky_relu,
    _aten._prelu_kernel_backward.default: _prelu,
    _aten.hardtanh_backward.default: _hardtanh,
    _aten.sigmoid_backward.default: _sigmoid,
    _aten.tanh_backward.default: _tanh,
    _aten.silu_backward.default: _silu,
    _aten.mish_backward.default: _mish,
    _aten.gelu_backward.default: _gelu,
    _aten.hardswish_backward.default: _hardswish,
    _aten.hardsigmoid_backward.default: _hardsigmoid,
    _aten.softplus_backward.default: _softplus,
    _aten.log_sigmoid_backward.default: _log_sigmoid,
    _aten.elu_backward.default: _elu,
}


# What may follow a sum, being linear in one of two arguments, in the last two, and in the first.
IN_EITHER = {_aten.mul.Tensor}
IN_ALL = {_aten.add.Tensor, _aten.sub.Tensor, _aten.where.self}
IN_FIRST = {
    *GRADIENT_RULES,
    *(_aten.div.Tensor, _aten.div.Scalar, _aten.mul.Scalar, _aten.neg.default),
    *(_aten.view.default, _aten.detach.default, _aten.alias.default),
    *(_aten.unsqueeze.default, _aten.squeeze.default, _aten.squeeze.dim),
}
