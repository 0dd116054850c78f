"""A function with its programs: one for each way in which it is called."""

import functools
import inspect
import itertools
import json
import numbers
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .operands import TRACED_ROWS, TRACED_SIZES, find_traced_shape, take_operand
from .program import Acc, Argument, Operand, Program
from .recorded import (
    AS_ACC,
    NOTHING,
    Derivative,
    Kind,
    Recorded,
    make_derivative,
    record,
    write_recorded,
)
from .tracing.gradient import Gradient, trace_gradient
from .tracing.row_gradient import RowGradientTracer
from .tracing.rows import RowTracer
from .tracing.shifted import find_shift, read_sum
from .tracing.trace import Output, Refusal, trace

# What a program depends on: of each operand by name its kind and its dimensions, a number, or None.
Key = tuple[tuple[str, tuple[str, int] | float | None], ...]

# Of one function. A number may be another one in each call, and so may N of one along rows.
_MOST_PROGRAMS = 512
_UNKNOWN = "unknown"  # beside None, which is known
_COUNT = itertools.count()
_BY_TOKEN: weakref.WeakValueDictionary[str, "TracedFunction"] = weakref.WeakValueDictionary()


class Traced(NamedTuple):
    program: Program
    is_tuple: bool  # whether the function gives one, or a tensor
    outputs: tuple[Output, ...]


class TracedFunction:
    """Raises Refusal where no program can be made."""

    def __init__(self, name: str, function: Callable[..., Tensor]) -> None:
        self.name, self.function = name, function
        # The names of the operands, and whether each must be given.
        self.operands = _read_operands(name, function)
        # TorchDynamo hands over constants alone, and takes a number that varies for none.
        self.token = str(next(_COUNT))
        self._programs: dict[tuple, Traced | None] = {}  # None: it depends on N
        self._gradients: dict[tuple, Gradient | Refusal] = {}
        _BY_TOKEN[self.token] = self

    def find(self, key: Key, n: int | None = None) -> Traced:
        """n: columns of the product. A program of any number serves all, where there is one."""
        identity = _identify(key)
        found = self._programs.get(identity, _UNKNOWN)
        if isinstance(found, str):
            try:
                found = _keep(self._programs, identity, self._trace_twice(key))
            except Refusal as refusal:
                if n is None or not refusal.may_be_of_rows:
                    raise
                found = _keep(self._programs, (identity, n), self._trace_twice(key, n))
                _keep(self._programs, identity, None)
        if found is not None:
            return found
        if n is None:
            refusal = Refusal(f"{self.name}: the number of columns must be known")
            refusal.may_be_of_rows = True
            raise refusal
        found = self._programs.get((identity, n))
        return found or _keep(self._programs, (identity, n), self._trace_twice(key, n))

    def find_gradient(
        self,
        key: Key,
        needed: tuple[bool, ...],
        given: tuple[bool, ...] | None = None,
        n: int | None = None,
    ) -> Gradient:
        """`needed`: of acc and the operands that are tensors. `given`: which results have one."""
        n = n if self.find(key, n).program.columns else None
        identity = _identify(key), needed, given, n
        found = self._gradients.get(identity)
        if found is None:
            try:
                found = self._trace_gradient(key, needed, given, n)
            except Refusal as refusal:
                found = refusal
            _keep(self._gradients, identity, found)
        if isinstance(found, Refusal):
            raise found
        return found

    def _trace_gradient(self, key: Key, needed, given, n: int | None) -> Gradient:
        more = () if n is None else (functools.partial(RowGradientTracer, columns=n),)
        first, second = (
            trace_gradient(self.name, *self.bind(key, sizes), needed, given, *more)
            for sizes in _choose_sizes(n)
        )
        if (first.program.text, first.outputs) != (second.program.text, second.outputs):
            raise Refusal(f"{self.name}: its gradient must compute the same for all sizes")
        if first.forward.text != self.find(key, n).program.text:
            raise Refusal(f"{self.name}: it must compute the same where it is differentiated")
        return first

    def _trace_twice(self, key: Key, n: int | None = None) -> Traced:
        """n: of one that depends on it; else by two of them."""
        sizes = _choose_sizes(n)
        first, second = (self._trace(key, each, n) for each in sizes)
        if first.program.text != second.program.text:
            must = "it must compute the same for all sizes and in every call"
            raise Refusal(f"{self.name}: {must}, got others for {sizes[1]}")
        return first

    def _trace(self, key: Key, sizes: tuple[int, int], n: int | None) -> Traced:
        function, shapes = self.bind(key, sizes)
        inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
        more = () if n is None else (functools.partial(RowTracer, columns=n),)
        return Traced(*trace(self.name, function, shapes, inputs, *more))

    def bind(self, key: Key, sizes: tuple[int, int]):
        """The function of acc and the tensors among the operands, and the shapes of those."""
        names = [name for name, found in key if isinstance(found, tuple)]
        others = {name: found for name, found in key if not isinstance(found, tuple)}
        shapes = [find_traced_shape(*found, sizes) for _, found in key if isinstance(found, tuple)]

        def function(acc, *tensors):
            return self.function(acc, **dict(zip(names, tensors, strict=True)), **others)

        return function, [sizes, *shapes]


def _keep(kept: dict, identity, found):
    """`found`, which stays: until there are too many, when all are traced again."""
    if len(kept) >= _MOST_PROGRAMS:
        kept.clear()
    kept[identity] = found
    return found


@torch._dynamo.assume_constant_result
def find_text(token: str, key: Key, n: int | None) -> tuple[str, bool, tuple[bool, ...]] | None:
    """The program's text, whether the function gives a tuple, and of each result whether its shape
    is (M,); also while TorchDynamo traces. None: it depends on N, which must be given."""
    try:
        found = _BY_TOKEN[token].find(key, n)
    except Refusal as refusal:
        if n is None and refusal.may_be_of_rows:
            return None
        raise
    program, is_tuple, outputs = found
    return program.text, is_tuple, tuple(each.is_row for each in outputs)


@torch._dynamo.assume_constant_result
def find_recorded(
    token: str,
    key: Key,
    n: int | None,
    needed: tuple[bool, ...],
    out: str,
    wide: str,
    inputs: tuple[str, ...],
) -> tuple | None:
    """recorded.record's; None where the gradient is no program."""
    function = _BY_TOKEN[token]
    try:
        gradient = function.find_gradient(key, needed, n=n)
    except Refusal:
        return None
    kinds = _list_kinds(key)
    text = function.find(key, n).program.text
    request = (token, key, n, needed, out, wide, inputs)
    recorded = record(text, gradient, needed, kinds, out, wide, inputs, request)
    return None if recorded is None else write_recorded(recorded)


def find_function(recorded: Recorded) -> TracedFunction:
    return _BY_TOKEN[recorded.request[0]]


def write_request(recorded: Recorded) -> str | None:
    """The function of a call and what it depends on, as read_request reads them. None: a number has
    no words."""
    token, key, *_ = recorded.request
    try:
        return json.dumps((token, key))
    except (TypeError, ValueError):  # of a type that has none, or too long
        return None


def read_request(words: str) -> tuple[TracedFunction, Key]:
    """Raises RuntimeError where the function is no longer there."""
    token, key = json.loads(words)
    function = _BY_TOKEN.get(token)
    if function is None:
        must = "the function of an epilogue must be there where its gradient is differentiated"
        raise RuntimeError(f"{must}, got one that is gone")
    found = ((name, tuple(each) if isinstance(each, list) else each) for name, each in key)
    return function, tuple(found)


def find_for_given(
    function: TracedFunction, recorded: Recorded, given: tuple[bool, ...]
) -> Derivative:
    """Of the gradient, for a backward pass in which some results have none: there 0 times infinity
    is not NaN. Where it cannot be had, they count as zeros."""
    _, key, n, needed, _, wide, inputs = recorded.request
    try:
        gradient = function.find_gradient(key, needed, given, n)
    except Refusal:
        return recorded.gradient
    shift = recorded.shift
    if shift != NOTHING and not {Acc(), Operand(shift)}.isdisjoint(gradient.operands):
        if find_shift(function.find(key, n).program, gradient) != shift:
            return recorded.gradient
        gradient = read_sum(gradient, shift)
    kinds = _list_kinds(key)
    of_results = (AS_ACC,) * recorded.results
    return make_derivative(gradient, needed, kinds, of_results, wide, inputs)


def differentiate_function(
    traced: TracedFunction,
    key: Key,
    needed: tuple[bool, ...],
    grads: tuple[Tensor | None, ...],
    acc: Tensor,
    operands: list[Tensor],
) -> list[Tensor | None]:
    """The gradients of acc and of the operands that are needed, by PyTorch's ops of the function
    itself, which it differentiates again where gradients are recorded."""
    is_recorded = torch.is_grad_enabled()
    function, _ = traced.bind(key, TRACED_SIZES[0])
    kinds = [found[0] for _, found in key if isinstance(found, tuple)]
    with torch.enable_grad():
        # Behind views: autograd would look for an operand behind acc too, where a layer in front
        # has the same one, and in the node that acc is a result of and that waits for this.
        acc, *operands = (each.view_as(each) for each in (acc, *operands))
        # The function may write to acc, which is kept for other backward passes.
        rows = acc.reshape(-1, acc.shape[-1]).clone()
        taken = [take_operand(*each, rows) for each in zip(operands, kinds, strict=True)]
        results = function(rows, *taken)
        results = results if isinstance(results, (tuple, list)) else [results]
    pairs = [
        (result, grad.reshape(result.shape).to(rows.dtype))
        for result, grad in zip(results, grads, strict=True)
        if grad is not None and result.requires_grad
    ]
    inputs = [each for each, need in zip((acc, *operands), needed, strict=True) if need]
    found: list[Tensor | None] = [None] * len(inputs)
    if pairs and inputs:
        of_results, given = zip(*pairs, strict=True)
        options = {"create_graph": is_recorded, "allow_unused": True}
        found = list(torch.autograd.grad(of_results, inputs, given, **options))
    gradients = iter(found)
    return [next(gradients) if each else None for each in needed]


def _list_kinds(key: Key) -> tuple[Kind, ...]:
    """Of the operands that are tensors."""
    return tuple(found for _, found in key if isinstance(found, tuple))


def _choose_sizes(n: int | None) -> tuple[tuple[int, int], ...]:
    return TRACED_SIZES if n is None else tuple((m, n) for m in TRACED_ROWS)


def _identify(key: Key) -> tuple:
    """To look it up: 0.0 and -0.0, or 1 and True, are two numbers, and NaN is one."""
    return tuple(
        (name, _name_number(found) if isinstance(found, numbers.Real) else found)
        for name, found in key
    )


def _name_number(number: numbers.Real) -> str:
    # Python writes no integer of 5000 digits in decimals.
    text = hex(number) if isinstance(number, int) else repr(number)
    return f"{type(number).__name__} {text}"


def _read_operands(name: str, function: Callable) -> dict[str, bool]:
    if isinstance(function, type):
        raise TypeError(f"{name}: what is called must be a function, got a class")
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        first, *others = inspect.signature(called).parameters.values() or (None,)
    except ValueError:  # PyTorch's own, such as torch.tanh, which tell none
        return {}
    kinds = inspect.Parameter
    if first is None or first.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"{name}: the first argument must be acc, got none")
    if first.name in ("self", "cls"):
        # A call would hand it acc in place of the object.
        must = "the first argument must be acc, as it is of a function or a bound method"
        raise TypeError(f"{name}: {must}, got {first.name}")
    for each in others:
        if each.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
            raise TypeError(f"{name}: operands must have names, got {each}")
    return {each.name: each.default is kinds.empty for each in others}
