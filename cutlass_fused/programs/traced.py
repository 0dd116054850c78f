"""A function with its programs: one for each way in which it is called."""

import inspect
import itertools
import numbers
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .operands import TRACED_SIZES, find_traced_shape, take_operand
from .program import Acc, Argument, Operand, Program
from .recorded import NOTHING, Derivative, Kind, Recorded, make_derivative, record, write_recorded
from .tracing.gradient import Gradient, trace_gradient
from .tracing.shifted import find_shift, read_sum
from .tracing.trace import Refusal, trace

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
        self._gradients: dict[tuple, Gradient | Refusal] = {}
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

    def find_gradient(
        self, key: Key, needed: tuple[bool, ...], given: tuple[bool, ...] | None = None
    ) -> Gradient:
        """`needed`: of acc and the operands that are tensors. `given`: which results have one."""
        identity = _identify(key), needed, given
        if identity not in self._gradients:
            try:
                self._gradients[identity] = self._trace_gradient(key, needed, given)
            except Refusal as refusal:
                self._gradients[identity] = refusal
        found = self._gradients[identity]
        if isinstance(found, Refusal):
            raise found
        return found

    def _trace_gradient(self, key: Key, needed, given) -> Gradient:
        first, second = (
            trace_gradient(self.name, *self.bind(key, sizes), needed, given)
            for sizes in TRACED_SIZES
        )
        if (first.program.text, first.outputs) != (second.program.text, second.outputs):
            raise Refusal(f"{self.name}: its gradient must compute the same for all sizes")
        if first.forward.text != self.find(key).program.text:
            raise Refusal(f"{self.name}: it must compute the same where it is differentiated")
        return first

    def _trace(self, key: Key, sizes: tuple[int, int]) -> Traced:
        function, shapes = self.bind(key, sizes)
        inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
        return Traced(*trace(self.name, function, shapes, inputs))

    def bind(self, key: Key, sizes: tuple[int, int]):
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
    kinds = _list_kinds(key)
    text = function.find(key).program.text
    request = (token, key, needed, out, wide, inputs)
    recorded = record(text, gradient, needed, kinds, out, wide, inputs, request)
    return None if recorded is None else write_recorded(recorded)


def find_function(recorded: Recorded) -> TracedFunction:
    return _BY_TOKEN[recorded.request[0]]


def find_for_given(
    function: TracedFunction, recorded: Recorded, given: tuple[bool, ...]
) -> Derivative:
    """Of the gradient, for a backward pass in which some results have none: there 0 times infinity
    is not NaN. Where it cannot be had, they count as zeros."""
    _, key, needed, _, wide, inputs = recorded.request
    try:
        gradient = function.find_gradient(key, needed, given)
    except Refusal:
        return recorded.gradient
    shift = recorded.shift
    if shift != NOTHING and not {Acc(), Operand(shift)}.isdisjoint(gradient.operands):
        if find_shift(function.find(key).program, gradient) != shift:
            return recorded.gradient
        gradient = read_sum(gradient, shift)
    kinds = _list_kinds(key)
    return make_derivative(gradient, needed, kinds, recorded.results, wide, inputs)


def differentiate_function(
    traced: TracedFunction,
    recorded: Recorded,
    grads: tuple[Tensor | None, ...],
    acc: Tensor,
    operands: list[Tensor],
) -> list[Tensor | None]:
    """The gradients of acc and of the operands, by PyTorch's ops of the function itself, which it
    differentiates again."""
    _, key, needed, *_ = recorded.request
    function, _ = traced.bind(key, TRACED_SIZES[0])
    kinds = [found[0] for _, found in key if isinstance(found, tuple)]
    with torch.enable_grad():
        rows = acc.reshape(-1, acc.shape[-1])
        taken = [take_operand(*each, rows) for each in zip(operands, kinds, strict=True)]
        results = function(rows, *taken)
        results = results if isinstance(results, (tuple, list)) else [results]
    pairs = [
        (result, grad.reshape(rows.shape).to(rows.dtype))
        for result, grad in zip(results, grads, strict=True)
        if grad is not None and result.requires_grad
    ]
    inputs = [each for each, need in zip((acc, *operands), needed, strict=True) if need]
    found: list[Tensor | None] = [None] * len(inputs)
    if pairs and inputs:
        of_results, given = zip(*pairs, strict=True)
        options = {"create_graph": True, "allow_unused": True}
        found = list(torch.autograd.grad(of_results, inputs, given, **options))
    gradients = iter(found)
    return [next(gradients) if each else None for each in needed]


def _list_kinds(key: Key) -> tuple[Kind, ...]:
    """Of the operands that are tensors."""
    return tuple(found for _, found in key if isinstance(found, tuple))


def _identify(key: Key) -> tuple:
    """To look it up: 0.0 and -0.0, or 1 and True, are two numbers, and NaN is one."""
    return tuple(
        (name, f"{type(found).__name__} {found!r}" if isinstance(found, numbers.Real) else found)
        for name, found in key
    )


def _read_operands(name: str, function: Callable) -> dict[str, bool]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        first, *others = inspect.signature(called).parameters.values() or (None,)
    except ValueError:  # PyTorch's own, such as torch.tanh, which tell none
        return {}
    kinds = inspect.Parameter
    if first is None or first.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"{name}: the first argument must be acc, got none")
    for each in others:
        if each.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
            raise TypeError(f"{name}: operands must have names, got {each}")
    return {each.name: each.default is kinds.empty for each in others}
