"""A function with its programs: one for each way in which it is called."""

import inspect
import itertools
import numbers
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .gradient import Gradient, trace_gradient
from .operands import TRACED_SIZES, find_traced_shape
from .program import Acc, Argument, Operand, Program
from .recorded import Recorded, record
from .trace import Refusal, trace

# What a program depends on: of each operand by name its kind and its dimensions, a number, or None.
Key = tuple[tuple[str, tuple[str, int] | float | None], ...]

_COUNT = itertools.count()
_BY_TOKEN: weakref.WeakValueDictionary[str, "TracedFunction"] = weakref.WeakValueDictionary()


class Traced(NamedTuple):
    program: Program
    is_tuple: bool  # whether the function gives one, or a tensor


class TracedFunction:
    """Raises Refusal where no program can be made."""

    def __init__(self, name: str, function: Callable[..., Tensor]) -> None:
        self.name, self.function = name, function
        # The names of the operands, and whether each must be given.
        self.operands = _read_operands(name, function)
        # TorchDynamo hands over constants alone, and takes a number that varies for none.
        self.token = str(next(_COUNT))
        self._programs: dict[tuple, Traced] = {}
        self._gradients: dict[tuple, Gradient] = {}
        _BY_TOKEN[self.token] = self

    def find(self, key: Key) -> Traced:
        identity = _identify(key)
        if identity not in self._programs:
            first, second = (self._trace(key, sizes) for sizes in TRACED_SIZES)
            if first.program.text != second.program.text:
                must = "it must compute the same for all sizes and in every call"
                raise Refusal(f"{self.name}: {must}, got others for {TRACED_SIZES[1]}")
            self._programs[identity] = first
        return self._programs[identity]

    def find_gradient(self, key: Key, needed: tuple[bool, ...]) -> Gradient:
        """`needed`: of acc and the operands that are tensors."""
        identity = _identify(key), needed
        if identity not in self._gradients:
            function, shapes = self._bind(key, TRACED_SIZES[0])
            self._gradients[identity] = trace_gradient(self.name, function, shapes, needed)
        return self._gradients[identity]

    def _trace(self, key: Key, sizes: tuple[int, int]) -> Traced:
        function, shapes = self._bind(key, sizes)
        inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
        return Traced(*trace(self.name, function, shapes, inputs))

    def _bind(self, key: Key, sizes: tuple[int, int]):
        """The function of acc and the tensors among the operands, and the shapes of those."""
        names = [name for name, found in key if isinstance(found, tuple)]
        others = {name: found for name, found in key if not isinstance(found, tuple)}
        shapes = [find_traced_shape(*found, sizes) for _, found in key if isinstance(found, tuple)]

        def function(acc, *tensors):
            return self.function(acc, **dict(zip(names, tensors, strict=True)), **others)

        return function, [sizes, *shapes]


@torch._dynamo.assume_constant_result
def find_text(token: str, key: Key) -> tuple[str, bool]:
    """The program's text, and whether the function gives a tuple; also while TorchDynamo traces."""
    program, is_tuple = _BY_TOKEN[token].find(key)
    return program.text, is_tuple


@torch._dynamo.assume_constant_result
def find_recorded(
    token: str, key: Key, needed: tuple[bool, ...], out: str, wide: str, inputs: tuple[str, ...]
) -> tuple | None:
    """recorded.record's; None where the gradient is no program."""
    function = _BY_TOKEN[token]
    try:
        gradient = function.find_gradient(key, needed)
    except Refusal:
        return None
    kinds = tuple(found[0] for _, found in key if isinstance(found, tuple))
    text = function.find(key).program.text
    found: Recorded = record(text, gradient, needed, kinds, out, wide, inputs)
    return tuple(found)


def _identify(key: Key) -> tuple:
    """To look it up: 0.0 and -0.0, or 1 and True, are two numbers, and NaN is one."""
    return tuple(
        (name, f"{type(found).__name__} {found!r}" if isinstance(found, numbers.Real) else found)
        for name, found in key
    )


def _read_operands(name: str, function: Callable) -> dict[str, bool]:
    first, *others = inspect.signature(function).parameters.values() or (None,)
    kinds = inspect.Parameter
    if first is None or first.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"{name}: the first argument must be acc, got none")
    for each in others:
        if each.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
            raise TypeError(f"{name}: operands must have names, got {each}")
    return {each.name: each.default is kinds.empty for each in others}
