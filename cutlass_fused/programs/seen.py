"""Calls of an epilogue that are as an earlier one was, which has found what they run.

To check the arguments of a call, and to find its program and dtypes, takes longer than to run the
op. Where nothing has changed but the elements of tensors, it is not done again.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..functional._other_layouts import STRIDED
from .recorded import Recorded

_PLAIN = (Tensor, torch.nn.Parameter)
_NUMBERS = (float, int, bool)  # not their subclasses, nor NumPy's
# A number may be another one in each. Each takes less than a kilobyte, without its program.
_MOST_CALLS = 256


class Seen(NamedTuple):
    """What a call runs.

    text: its program.
    out: the dtype of all results, by name.
    is_tuple: whether they are given as a tuple.
    tensors: the names of the operands that are tensors, in the order of the program.
    converted: those among them that ops do not take as they are.
    recorded: what runs instead where a gradient is asked for.
    are_rows: of each result whether it is given as (...,) of (..., 1); () is of none.
    native: `recorded` in words for C++; None where it is Python's.
    """

    text: str
    out: str
    is_tuple: bool
    tensors: tuple[str, ...]
    converted: tuple[str, ...]
    recorded: Recorded | None
    are_rows: tuple[bool, ...]
    native: str | None = None


class SeenCalls:
    """By what `describe` says of them. Any thread may call."""

    def __init__(self) -> None:
        self._calls: dict[tuple, Seen] = {}
        self.find = self._calls.get

    def __len__(self) -> int:
        return len(self._calls)

    def keep(self, call: tuple, seen: Seen) -> None:
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        self._calls[call] = seen


def describe(
    x: Tensor,
    weight: Tensor,
    precision: str,
    out_dtype: torch.dtype | None,
    operands: dict[str, Tensor | float | None],
) -> tuple | None:
    """All that decides what a call runs: of tensors everything but their elements, strides and
    rows, of numbers their values. None where something else may decide: a tracer, a transform, a
    subclass.

    Of autocast nothing is asked: x and weight are cast already, and operands are not.
    """
    if (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_tracing()
    ):
        return None
    for each in (x, weight):
        if type(each) not in _PLAIN or each.layout is not STRIDED or each.is_nested:
            return None
    is_recorded, shape = torch.is_grad_enabled(), x.shape
    rows = shape[:-1]
    # Of one row a tile is a row of columns: operands.find_kind.
    has_rows = rows.numel() != 1
    parts = [
        *(precision, out_dtype, is_recorded, has_rows),
        *(len(shape), shape[-1:], x.dtype, x.device, is_recorded and x.requires_grad),
        *(weight.shape, weight.dtype, weight.device, is_recorded and weight.requires_grad),
    ]
    for name, each in operands.items():
        kind = type(each)
        if kind in _PLAIN:
            if each.layout is not STRIDED or each.is_nested:
                return None
            shape = each.shape
            if has_rows and shape[:-1] == rows:
                shape = shape[-1]
            parts += name, shape, each.dtype, each.device, is_recorded and each.requires_grad
        elif each is None:
            parts += name, None
        elif kind in _NUMBERS:
            # 1 and True are two numbers here, as are 0.0 and -0.0.
            parts += name, kind, each or repr(each)
        else:
            return None
    return tuple(parts)
