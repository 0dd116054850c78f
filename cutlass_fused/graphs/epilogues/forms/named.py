"""Programs that have an op of their own, whose kernels come with the library for all GPUs."""

import itertools
from typing import NamedTuple

import torch
from torch import fx

from ...._namespace import ops
from ....programs.operands import ROW, SCALAR
from ....programs.program import Acc, Operand, Program
from .match import match


class Named(NamedTuple):
    """An op, and its arguments behind x and weight: names of operands of the pattern, or of
    numbers, or what stands for them."""

    op: torch._ops.OpOverload
    pattern: tuple
    arguments: tuple


def _list_leaky_relus():
    for bias, scale, number in itertools.product((None, "bias"), (None, "scale"), (1.0, "M")):
        v = Acc() if bias is None else ("add", Acc(), bias)
        v = v if scale is None else ("mul", v, scale)
        v = v if number == 1.0 else ("mul", v, number)
        op = ops.linear_scale_leaky_relu.default
        yield Named(op, ("leaky_relu", v, "S"), (bias, scale, number, "S"))


def _list_batch_norms():
    rstd = "rsqrt", ("add", "var", "E")
    affine = (None, None), ("gamma", None), ("gamma", "beta")
    parts = itertools.product((None, "bias"), (None, "scale"), affine)
    for bias, scale, (gamma, beta) in parts:
        v = Acc() if bias is None else ("add", Acc(), bias)
        v = v if scale is None else ("mul", v, scale)
        y = ("mul", ("sub", v, "mean"), rstd)
        y = y if gamma is None else ("mul", y, gamma)
        y = y if beta is None else ("add", y, beta)
        op = ops.linear_scale_batch_norm_inference.default
        yield Named(op, y, (bias, scale, "mean", "var", gamma, beta, "E"))


_NAMED = (*_list_leaky_relus(), *_list_batch_norms())
_MAY_BE_ONE_VALUE = ("scale",)


def find_named(
    program: Program,
    sources: list[fx.Node],
    kinds: list[str],
    out: torch.dtype,
    dtype: torch.dtype,
) -> tuple[torch._ops.OpOverload, list] | None:
    """The op and its arguments: numbers, None, and Operand for those of the program.

    Such ops take vectors of fp32 or of the dtype of x, and give that.
    """
    if len(program.outputs) != 1 or program.columns or out != dtype:
        return None
    if not {each.meta["val"].dtype for each in sources} <= {dtype, torch.float32}:
        return None
    for named in _NAMED:
        found = match(program.lines, named.pattern, program.outputs[0])
        if found is not None and _fits(found, kinds):
            given = [found[each] if isinstance(each, str) else each for each in named.arguments]
            return named.op, given
    return None


def _fits(found: dict, kinds: list[str]) -> bool:
    for name, argument in found.items():
        if name.isupper():
            continue
        kind = kinds[argument.index] if isinstance(argument, Operand) else None
        if kind != ROW and not (kind == SCALAR and name in _MAY_BE_ONE_VALUE):
            return False
    return True
