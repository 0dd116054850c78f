"""Which ops of Inductor's graphs a program can have, and what they are there."""

import operator

import torch
from torch import fx

from ...programs.tracing.builder import Builder, Known
from ...programs.tracing.constants import CONSTANTS
from ...programs.tracing.rules import RULES

_aten, _prims = torch.ops.aten, torch.ops.prims

CONVERSIONS = frozenset((_prims.convert_element_type.default, _aten._to_copy.default))
# Whose result has the elements of their argument, in order.
VIEWS = frozenset(
    (
        *(_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default),
        *(_aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.squeeze.default),
        *(_aten.alias.default, _aten.detach.default, _aten.clone.default),
    )
)
EXPAND = _aten.expand.default


def _multiply_add(builder: Builder, x: Known, y: Known, z: Known) -> Known:
    return builder.add("add", builder.add("mul", x, y), z)


POINTWISE = {op: rule for op, rule in RULES.items() if len(op._schema.returns) == 1}
if hasattr(_prims, "fma"):
    POINTWISE[_prims.fma.default] = _multiply_add
FLOATS = (torch.float32, torch.float16, torch.bfloat16)

_MOVES = frozenset((_aten.permute.default, _aten.t.default, _aten.transpose.int))
# Sums and the like along other dimensions too: none of them has its input in memory for itself.
_SUMS = frozenset(
    (
        *(_aten.sum.dim_IntList, _aten.sum.default, _aten.mean.dim, _aten.mean.default),
        *(_aten.amax.default, _aten.amin.default, _aten.max.dim, _aten.min.dim),
        *(_aten.var_mean.correction, _aten.var.correction, _aten.prod.default),
        *(_aten.any.default, _aten.any.dim, _aten.argmax.default, _aten.argmin.default),
    )
)
_INLINED = frozenset(POINTWISE) | CONVERSIONS | _SUMS | {EXPAND}


def _sum(builder: Builder, x: Known, n: int) -> Known:
    return builder.add("row_sum", x, float(n))


def _mean(builder: Builder, x: Known, n: int) -> Known:
    return builder.add("div", _sum(builder, x, n), float(n))


def _largest(builder: Builder, x: Known, n: int) -> Known:
    return builder.add("row_max", x, float(n))


def _smallest(builder: Builder, x: Known, n: int) -> Known:
    return builder.add("row_min", x, float(n))


def _variance(builder: Builder, x: Known, n: int, correction=None) -> tuple[Known, Known]:
    """And the mean, which it takes first."""
    mean = _mean(builder, x, n)
    away = builder.add("sub", x, mean)
    total = _sum(builder, builder.add("mul", away, away), n)
    correction = 1.0 if correction is None else float(correction)
    return builder.add("div", total, max(0.0, n - correction)), mean


def _with_place(rule):
    """And where the element lies, which no program tells."""
    return lambda builder, x, n: (rule(builder, x, n), None)


# Rules of (builder, x, columns, options); the dimensions are the last one alone.
ALONG_ROWS = {
    _aten.sum.dim_IntList: _sum,
    _aten.mean.dim: _mean,
    _aten.amax.default: _largest,
    _aten.amin.default: _smallest,
    _aten.max.dim: _with_place(_largest),
    _aten.min.dim: _with_place(_smallest),
    _aten.var_mean.correction: _variance,
    _aten.var.correction: lambda *arguments, **options: _variance(*arguments, **options)[0],
}


def is_mutable(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def find_constant(node: fx.Node) -> float | bool | None:
    """The number that all elements have, where the graph says it."""
    if node.op != "call_function" or node.target not in CONSTANTS:
        return None
    try:
        value = CONSTANTS[node.target](*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return None
    if isinstance(value, bool):
        return value
    return float(value) if isinstance(value, (int, float)) else None


def is_stored(node: fx.Node) -> bool:
    """Whether something reads it from memory that is no kernel of Inductor's, or it is a result."""
    for user in node.users:
        if user.op != "call_function":
            return True
        if user.target in VIEWS or user.target in _MOVES:
            if is_stored(user):
                return True
        elif user.target not in _INLINED and user.target is not operator.getitem:
            return True
    return False


def is_inlined(node: fx.Node) -> bool:
    """Whether a kernel of Inductor's computes with it."""
    if node.op != "call_function":
        return False
    if node.target in VIEWS or node.target in _MOVES:
        return any(map(is_inlined, node.users))
    return node.target in _INLINED
