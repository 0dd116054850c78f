"""What is recorded of a call of linear_epilogue that PyTorch differentiates."""

import dataclasses
import functools
from typing import NamedTuple

from .operands import TILE
from .parse import parse
from .program import MOST_OPERANDS, MOST_OUTPUTS, Acc, Line, Operand, Program, Value
from .tracing.gradient import NOTHING, Gradient
from .tracing.shifted import find_shift, keep_sum, read_sum

# Of an operand: its kind, and its dimensions as the function gets it.
Kind = tuple[str, int]
AS_ACC: Kind = (TILE, 2)


class Derivative(NamedTuple):
    """The program of a gradient, as a backward pass runs it.

    text: its text.
    out: the dtypes of its outputs by name; empty: it has none.
    first: the result whose gradient is its acc; -1: acc of the function is.
    reads: its operands, as indices into acc and the operands of what is differentiated, the
        gradients of all its results, and, last, one of the acc that a call gives beside those.
    kinds: of these operands.
    places: of acc and each operand, which of its outputs is the gradient; -1 is none.
    """

    text: str
    out: str
    first: int
    reads: tuple[int, ...]
    kinds: tuple[Kind, ...]
    places: tuple[int, ...]


class Recorded(NamedTuple):
    """What a call with gradients runs, in strings and numbers, which TorchDynamo takes for
    constants.

    text: the function's program, with acc behind its outputs where the gradient reads it.
    out: the dtypes of those by name.
    results: how many outputs are the function's own.
    gradient: of the function, a Derivative.
    shift: the operand with which acc is kept, as their sum, since the function and the gradient
        read the sum alone: its gradient is that of acc. -1 is none.
    constants: the results that have no gradient.
    is_first_order: the gradient's program has no derivative of its own; acc and all operands are
        kept for the function's.
    request: what traced.find_recorded was asked for.
    asynchronous: whether kernels are linked on another thread.
    """

    text: str
    out: str
    results: int
    gradient: Derivative
    shift: int
    constants: tuple[int, ...]
    is_first_order: bool
    request: tuple
    asynchronous: bool = False


def record(
    text: str,
    gradient: Gradient,
    needed: tuple[bool, ...],
    kinds: tuple[Kind, ...],
    out: str,
    wide: str,
    inputs: tuple[str, ...],
    request: tuple,
) -> Recorded | None:
    """needed: whether the gradients of acc and of each operand are asked for. kinds: of the
    operands. out: the dtype of all results by name; wide: that of acc as it is computed; inputs:
    those that the gradients of acc and of the operands get. None: there would be too many
    outputs.

    Acc is kept in 16 bits where x and the results are: as many bytes as eager PyTorch keeps, and as
    many digits.
    """
    forward = parse(text)
    results, shift = len(forward.outputs), NOTHING
    if not gradient.is_first_order:
        shift = find_shift(forward, gradient)
    dtypes = [out] * results
    kept = out if out == inputs[0] else wide
    if shift != NOTHING:
        forward, gradient = keep_sum(forward, shift), read_sum(gradient, shift)
        dtypes.append(kept)
    elif Acc() in gradient.operands or gradient.is_first_order:
        widths = (*forward.widths, 1) if forward.widths else ()
        outputs = (*forward.outputs, Acc())
        forward = dataclasses.replace(forward, outputs=outputs, widths=widths)
        dtypes.append(kept)
    if len(dtypes) > MOST_OUTPUTS:
        return None
    return Recorded(
        forward.text,
        ",".join(dtypes),
        results,
        make_derivative(gradient, needed, kinds, results, wide, inputs),
        shift,
        gradient.constants,
        gradient.is_first_order,
        request,
    )


def read_recorded(given: tuple) -> Recorded:
    """As it was before `write_recorded`."""
    text, out, results, gradient, *others = given
    return Recorded(text, out, results, Derivative(*gradient), *others)


def write_recorded(recorded: Recorded) -> tuple:
    """In tuples, as TorchDynamo takes constants."""
    return tuple(recorded._replace(gradient=tuple(recorded.gradient)))


def make_derivative(
    gradient: Gradient,
    needed: tuple[bool, ...],
    kinds: tuple[Kind, ...],
    results: int,
    wide: str,
    inputs: tuple[str, ...],
) -> Derivative:
    found = iter(gradient.outputs)
    places = [next(found) if each else None for each in needed]
    reads = tuple(_find_index(each, len(kinds)) for each in gradient.operands)
    of_all = (AS_ACC, *kinds, *[AS_ACC] * results)
    return Derivative(
        gradient.program.text,
        ",".join(_choose_dtypes(places, of_all, inputs, wide)),
        gradient.first,
        reads,
        tuple(of_all[index] for index in reads),
        tuple(NOTHING if place is None else place for place in places),
    )


@functools.lru_cache(maxsize=1024)
def add_to_gradient(derivative: Derivative, shift: int, results: int) -> Derivative | None:
    """With the gradient that acc gets by being a result itself, as another operand, in the output
    that is the gradient of acc and of the operand `shift`. None where there is no room, or no such
    output."""
    program, places = parse(derivative.text), derivative.places
    ours = [0] if shift == NOTHING else [0, 1 + shift]
    place = next((places[index] for index in ours if places[index] != NOTHING), NOTHING)
    if place == NOTHING or program.operands == MOST_OPERANDS or program.columns:
        return None
    others = [each for index, each in enumerate(places) if index not in ours]
    line = Line("add", (program.outputs[place], Operand(program.operands)))
    outputs, dtypes = list(program.outputs), derivative.out.split(",")
    new = place
    if place in others:  # which get nothing by acc
        new = len(outputs)
        outputs.append(outputs[place])
        dtypes.append(dtypes[place])
    outputs[new] = Value(len(program.lines))
    if len(outputs) > MOST_OUTPUTS:
        return None
    added = Program(program.operands + 1, (*program.lines, line), tuple(outputs))
    try:
        parse(added.text)
    except ValueError:  # too long
        return None
    return Derivative(
        added.text,
        ",".join(dtypes),
        derivative.first,
        (*derivative.reads, len(places) + results),
        (*derivative.kinds, AS_ACC),
        tuple(new if i in ours and p != NOTHING else p for i, p in enumerate(places)),
    )


def _choose_dtypes(places, kinds: tuple[Kind, ...], inputs, wide: str) -> list[str]:
    """Of each output of a gradient's program. Terms of a sum are not rounded, unless something else
    has the same gradient; and what several have is as wide as the widest of them."""
    wanted: dict[int, list[tuple[str, str]]] = {}
    for place, (kind, _), dtype in zip(places, kinds, inputs, strict=False):
        if place is not None:
            wanted.setdefault(place, []).append((kind, dtype))
    chosen = []
    for place in sorted(wanted):
        of_kinds = {kind for kind, _ in wanted[place]}
        dtypes = {dtype for _, dtype in wanted[place]}
        chosen.append(dtypes.pop() if TILE in of_kinds and len(dtypes) == 1 else wide)
    return chosen


def _find_index(argument, operands: int) -> int:
    if isinstance(argument, Acc):
        return 0
    return 1 + argument.index if isinstance(argument, Operand) else 1 + operands + argument
