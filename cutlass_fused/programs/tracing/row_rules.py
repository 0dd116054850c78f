"""How the ops that add and compare along rows are written in words.

RULES[op](tracer, result, *arguments): the arguments of the op as they are; it says what the tensors
of the result stand for (tracing/rows.py).
"""

import math

import torch

from .layout import ROWS, join

_aten = torch.ops.aten


def _merged(merge):
    def rule(t, result, x, dims=None, keepdim=False, **_):
        span = t.span(x, dims)
        t.name(result, merge(span, t.find(x)), span.left(keepdim))

    return rule


def _merged_with_places(merge):
    """With where the first such element lies, which the gradient alone may read."""

    def rule(t, result, x, dim, keepdim=False):
        span = t.span(x, dim)
        found = merge(span, t.find(x))
        t.name(result[0], found, span.left(keepdim))
        t.keep_places(result[1], span, x, found)

    return rule


def _both(t, result, x, *, dim=None, keepdim=False):
    span = t.span(x, dim)
    for each, word in zip(result, ("minimum", "maximum"), strict=True):
        t.name(each, getattr(span, word)(t.find(x)), span.left(keepdim))


def _log_sum_exp(span, x):
    """PyTorch shifts by no infinity, which has no difference with itself."""
    b, most = span.builder, span.maximum(x)
    is_infinite = b.add("eq", b.add("abs", most), math.inf)
    shift = b.add("where", is_infinite, 0.0, most)
    total = span.sum(b.add("exp", b.add("sub", x, shift)))
    return b.add("add", b.add("log", total), shift)


def _softmax(t, result, x, dim, _):
    b, span = t.builder, t.span(x, dim)
    power = b.add("exp", b.add("sub", t.find(x), span.maximum(t.find(x))))
    t.name(result, b.add("div", power, span.sum(power)), t.layout(x))


def _log_softmax(t, result, x, dim, _):
    b, span = t.builder, t.span(x, dim)
    shifted = b.add("sub", t.find(x), span.maximum(t.find(x)))
    total = b.add("log", span.sum(b.add("exp", shifted)))
    t.name(result, b.add("sub", shifted, total), t.layout(x))


def _variance(span, x, correction):
    """The mean, and the variance in a second pass."""
    b, mean = span.builder, span.mean(x)
    away = b.add("sub", x, mean)
    total = span.sum(b.add("mul", away, away))
    correction = 1.0 if correction is None else float(correction)
    return mean, b.add("div", total, max(0.0, span.count - correction))


def _spread(*parts):
    """Of the parts, in their order: the variance, its root, the mean."""

    def rule(t, result, x, dim=None, *, correction=None, keepdim=False):
        span = t.span(x, dim)
        mean, variance = _variance(span, t.find(x), correction)
        found = {"var": variance, "mean": mean, "std": t.builder.add("sqrt", variance)}
        for each, part in zip(result if len(parts) > 1 else [result], parts, strict=True):
            t.name(each, found[part], span.left(keepdim))

    return rule


def _normalize(t, span, x, eps):
    """(x - mean) * rstd, mean and rstd"""
    b = t.builder
    mean, variance = _variance(span, x, 0)
    rstd = b.add("rsqrt", b.add("add", variance, float(eps)))
    return b.add("mul", b.add("sub", x, mean), rstd), mean, rstd


def _layer_norm(t, result, x, shape, weight, bias, eps):
    y, mean, rstd = _normalize(t, t.last(x, len(shape)), t.find(x), eps)
    layout = t.join_all(x, weight, bias)
    if weight is not None:
        y = t.builder.add("mul", y, t.find(weight))
    if bias is not None:
        y = t.builder.add("add", y, t.find(bias))
    left = t.last(x, len(shape)).left(True)
    t.name_all(result, (y, mean, rstd), (layout, left, left))


def _group_norm(t, result, x, weight, bias, rows, channels, spatial, groups, eps):
    """Channels lie along the columns, and what is behind them too."""
    span = t.groups(x, groups)
    y, mean, rstd = _normalize(t, span, t.find(x), eps)
    for parameter, word in ((weight, "mul"), (bias, "add")):
        if parameter is not None:
            if t.layout(parameter) != t.layout(x)[1:2]:
                t.refuse("calls aten.native_group_norm with parameters that are not of columns")
            y = t.builder.add(word, y, t.find(parameter))
    left = (ROWS, span.width if groups > 1 else 0)
    t.name_all(result, (y, mean, rstd), (t.layout(x), left, left))


def _vector_norm(t, result, x, order=2, dim=None, keepdim=False, *, dtype=None):
    b, span, size = t.builder, t.span(x, dim), t.builder.add("abs", t.find(x))
    if order == 2:
        found = b.add("sqrt", span.sum(b.add("mul", t.find(x), t.find(x))))
    elif order == 1:
        found = span.sum(size)
    elif order in (math.inf, -math.inf):
        found = span.maximum(size) if order > 0 else span.minimum(size)
    else:
        t.refuse(f"calls aten.linalg_vector_norm of order {order}, which no word of programs is")
    t.name(result, found, span.left(keepdim))


def find_window(t, x, kernel, stride, padding=0, dilation=1, ceil_mode=False):
    """Of pooling along the last dimension, without overlap: columns of a window."""
    sizes = [*([1] if len(kernel) == 1 else []), *kernel]
    steps = [*([1] if len(stride) == 1 else []), *stride] if stride else sizes
    padding = padding if isinstance(padding, (list, tuple)) else [padding]
    dilation = dilation if isinstance(dilation, (list, tuple)) else [dilation]
    length = x.shape[-1]
    is_apart = sizes == steps and sizes[0] == 1 and not any(padding) and set(dilation) == {1}
    if not is_apart or length % sizes[-1]:
        t.refuse("pools over other windows than such as divide the columns and do not overlap")
    return sizes[-1]


def _pool(t, result, x, width, merge):
    *before, step = t.layout(x)
    layout = (*before, step * width if x.shape[-1] > width else 0)
    t.name(result, merge(t.windows(x, width), t.find(x)), layout)


def _max_pool(t, result, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    width = find_window(t, x, kernel, stride, padding, dilation)
    _pool(t, result[0], x, width, lambda span, value: span.maximum(value))
    t.refuse_later(result[1])


def _average_pool(t, result, x, kernel, stride=(), padding=0, ceil_mode=False, *more):
    if len(more) > 1 and more[1] is not None:
        t.refuse("calls aten.avg_pool2d with another divisor")
    width = find_window(t, x, kernel, stride, padding)
    _pool(t, result, x, width, lambda span, value: span.mean(value))


def _adaptive_pool(is_maximum):
    def rule(t, result, x, sizes):
        first = result[0] if is_maximum else result
        if x.shape[-1] % sizes[-1] or sizes[:-1] != list(x.shape[-len(sizes) : -1]):
            t.refuse("pools over other windows than such as divide the columns")
        merge = (lambda s, v: s.maximum(v)) if is_maximum else (lambda s, v: s.mean(v))
        _pool(t, first, x, x.shape[-1] // sizes[-1], merge)
        if is_maximum:
            t.refuse_later(result[1])

    return rule


def _softmax_backward(t, result, grad, y, dim, _):
    b, span = t.builder, t.span(y, dim)
    product = b.add("mul", t.find(grad), t.find(y))
    found = b.add("sub", product, b.add("mul", t.find(y), span.sum(product)))
    t.name(result, found, t.join_all(grad, y))


def _log_softmax_backward(t, result, grad, y, dim, _):
    b, span = t.builder, t.span(y, dim)
    rest = b.add("mul", b.add("exp", t.find(y)), span.sum(t.find(grad)))
    t.name(result, b.add("sub", t.find(grad), rest), t.join_all(grad, y))


def _normalized_gradient(t, span, grad, x, mean, rstd):
    """Of x, and the normalized x."""
    b = t.builder
    y = b.add("mul", b.add("sub", x, mean), rstd)
    along = b.add("mul", y, span.mean(b.add("mul", grad, y)))
    rest = b.add("sub", b.add("sub", grad, span.mean(grad)), along)
    return b.add("mul", rest, rstd), y


def _layer_norm_backward(t, result, grad, x, shape, mean, rstd, weight, bias, mask):
    b, span, given = t.builder, t.last(x, len(shape)), t.find(grad)
    weighted = given if weight is None else b.add("mul", given, t.find(weight))
    found, y = _normalized_gradient(t, span, weighted, t.find(x), t.find(mean), t.find(rstd))
    layout = t.layout(x)
    if mask[0]:
        t.name(result[0], found, layout)
    terms = (b.add("mul", given, y), given)
    rows = len(layout) - len(shape)
    for each, term, is_asked in zip(result[1:], terms, mask[1:], strict=True):
        if is_asked:
            if any(s != ROWS and x.shape[dim] > 1 for dim, s in enumerate(layout[:rows])):
                t.refuse("has a gradient of parameters that groups of columns share")
            t.name_sum_of_rows(each, term, layout[rows:])


def _group_norm_backward(
    t, result, grad, x, mean, rstd, weight, rows, channels, spatial, groups, mask
):
    b, span, given = t.builder, t.groups(x, groups), t.find(grad)
    weighted = given if weight is None else b.add("mul", given, t.find(weight))
    found, y = _normalized_gradient(t, span, weighted, t.find(x), t.find(mean), t.find(rstd))
    layout = t.layout(x)
    if mask[0]:
        t.name(result[0], found, layout)
    for each, term, is_asked in zip(
        result[1:], (b.add("mul", given, y), given), mask[1:], strict=True
    ):
        if is_asked:
            t.name_sum_of_rows(each, term, layout[1:2])


def _join_merged(t, shape, layout, grad, dims):
    """The layout of what is computed of elements in this one, and of the gradient of what has been
    merged of them along `dims`, which all elements of a group have."""
    sizes, steps = list(grad.shape), list(t.layout(grad))
    for dim in dims:
        if steps[dim] != 0 and layout[dim] == 0:
            t.refuse("has a gradient of columns that one element stands for")
        sizes[dim], steps[dim] = 1, 0
    found = join([(shape, layout), (sizes, tuple(steps))], shape)
    if found is None:
        t.refuse("computes with elements of different places")
    return found


def _average_pool_gradient(t, result, grad, x, width):
    layout = _join_merged(t, x.shape, t.layout(x), grad, [x.dim() - 1])
    t.name(result, t.builder.add("div", t.find(grad), float(width)), layout)


def _average_pool_backward(t, result, grad, x, kernel, stride, padding, ceil, *more):
    if more[1:] and more[1] is not None:
        t.refuse("calls aten.avg_pool2d with another divisor")
    _average_pool_gradient(t, result, grad, x, find_window(t, x, kernel, stride, padding))


def _max_pool_gradient(t, result, grad, x, width):
    """PyTorch's pooling takes the last NaN of several, and else the first of equals."""
    b, span, value = t.builder, t.windows(x, width), t.find(x)
    if isinstance(value, float) or not span.is_whole:
        t.refuse("has a gradient of columns that do not lie side by side")
    layout = _join_merged(t, x.shape, t.layout(x), grad, [x.dim() - 1])
    is_first = span.first(b.add("eq", value, span.maximum(value)))
    is_it = b.add("or", is_first, span.last(b.add("ne", value, value)))
    t.name(result, b.add("where", is_it, t.find(grad), 0.0), layout)


def _max_pool_backward(t, result, grad, x, kernel, stride, padding, dilation, ceil_mode, _):
    width = find_window(t, x, kernel, stride, padding, dilation)
    _max_pool_gradient(t, result, grad, x, width)


def _adaptive_max_pool_backward(t, result, grad, x, _):
    _max_pool_gradient(t, result, grad, x, x.shape[-1] // grad.shape[-1])


def _adaptive_average_pool_backward(t, result, grad, x):
    _average_pool_gradient(t, result, grad, x, x.shape[-1] // grad.shape[-1])


def _scatter(t, result, zeros, dim, index, grad):
    """The gradient of a maximum, to where it lies."""
    found = t.find_places(index)
    if found is None or found.span.dims != {dim % zeros.dim()} or t.find(zeros) != 0.0:
        t.refuse("calls aten.scatter.src, which no word of programs is")
    merged = tuple(1 if i in found.span.dims else size for i, size in enumerate(found.shape))
    if (zeros.shape, index.shape, grad.shape) != (found.shape, merged, merged):
        t.refuse("calls aten.scatter.src, which no word of programs is")
    b, x = t.builder, found.x
    if isinstance(x, float) or not found.span.is_whole:
        t.refuse("has a gradient of columns that do not lie side by side")
    layout = _join_merged(t, found.shape, found.layout, grad, found.span.dims)
    # NaN is the largest of all, and the least.
    is_it = b.add("or", b.add("eq", x, found.merged), b.add("ne", x, x))
    t.name(result, b.add("where", found.span.first(is_it), t.find(grad), 0.0), layout)


def _sum(span, x):
    return span.sum(x)


def _mean(span, x):
    return span.mean(x)


def _maximum(span, x):
    return span.maximum(x)


def _minimum(span, x):
    return span.minimum(x)


SUMS = (_aten.sum.dim_IntList, _aten.sum.default)
ROW_RULES = {op: _merged(_sum) for op in SUMS} | {
    _aten.mean.dim: _merged(_mean),
    _aten.mean.default: _merged(_mean),
    _aten.amax.default: _merged(_maximum),
    _aten.amin.default: _merged(_minimum),
    _aten.max.default: _merged(_maximum),
    _aten.min.default: _merged(_minimum),
    _aten.max.dim: _merged_with_places(_maximum),
    _aten.min.dim: _merged_with_places(_minimum),
    _aten.aminmax.default: _both,
    _aten.logsumexp.default: _merged(_log_sum_exp),
    _aten._softmax.default: _softmax,
    _aten._log_softmax.default: _log_softmax,
    _aten.var.correction: _spread("var"),
    _aten.std.correction: _spread("std"),
    _aten.var_mean.correction: _spread("var", "mean"),
    _aten.std_mean.correction: _spread("std", "mean"),
    _aten.linalg_vector_norm.default: _vector_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten.max_pool2d_with_indices.default: _max_pool,
    _aten.avg_pool2d.default: _average_pool,
    _aten._adaptive_avg_pool2d.default: _adaptive_pool(False),
    _aten.adaptive_max_pool2d.default: _adaptive_pool(True),
}
ROW_GRADIENT_RULES = {
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten._log_softmax_backward_data.default: _log_softmax_backward,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.native_group_norm_backward.default: _group_norm_backward,
    _aten.avg_pool2d_backward.default: _average_pool_backward,
    _aten._adaptive_avg_pool2d_backward.default: _adaptive_average_pool_backward,
    _aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    _aten.adaptive_max_pool2d_backward.default: _adaptive_max_pool_backward,
    _aten.scatter.src: _scatter,
}
