"""What is recorded of a call of linear_epilogue that PyTorch differentiates."""

import dataclasses
import functools
from typing import NamedTuple

from .operands import ROW, SCALAR, TILE
from .parse import parse
from .program import MOST_OPERANDS, MOST_OUTPUTS, SUM, Acc, Line, Operand, Program, Value
from .tracing.gradient import NOTHING, Gradient
from .tracing.shifted import find_shift, is_result_enough, keep_sum, read_sum

# Of an operand: its kind, and its dimensions as the function gets it.
Kind = tuple[str, int]
AS_ACC: Kind = (TILE, 2)
AS_SUM: Kind = (ROW, 1)
# All that it does is to copy acc, as the gradient of a sum does.
COPY = Program(0, (), (Acc(),)).text


class Derivative(NamedTuple):
    """The program of a gradient, as a backward pass runs it.

    text: its text.
    out: the dtypes of its outputs by name, those of sums over the rows behind "sum:"; empty: it has
        none.
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

    text: the function's program, with acc behind its outputs where the gradient reads it; but where
        it reads acc and there is none, the result is kept in its place.
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
    is_alone = results == 1 and not gradient.is_first_order
    if is_alone and dtypes == [out, out] and is_result_enough(forward, gradient):
        forward, dtypes = dataclasses.replace(forward, outputs=forward.outputs[:1]), [out]
    if len(dtypes) > MOST_OUTPUTS:
        return None
    return Recorded(
        forward.text,
        ",".join(dtypes),
        results,
        make_derivative(gradient, needed, kinds, (AS_ACC,) * results, wide, inputs),
        shift,
        gradient.constants,
        gradient.is_first_order,
        request,
    )


def is_result_kept(recorded: Recorded, outputs: int) -> bool:
    """Whether the result of a call with so many outputs is kept in place of acc."""
    return outputs == recorded.results and 0 in recorded.gradient.reads


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
    results: tuple[Kind, ...],
    wide: str,
    inputs: tuple[str, ...],
) -> Derivative:
    """needed, kinds, wide, inputs: as of `record`. results: what the gradient of each result is."""
    found = iter(gradient.outputs)
    places = [next(found) if each else None for each in needed]
    reads = tuple(_find_index(each, len(kinds)) for each in gradient.operands)
    of_all = (AS_ACC, *kinds, *results)
    program = gradient.program
    sources, dtypes, chosen = _choose_outputs(program, places, of_all, inputs, wide)
    if sources != list(range(len(program.outputs))):
        outputs = tuple(program.outputs[source] for source in sources)
        program = dataclasses.replace(program, outputs=outputs)
    return Derivative(
        program.text,
        ",".join(dtypes),
        gradient.first,
        reads,
        tuple(of_all[index] for index in reads),
        tuple(chosen),
    )


@functools.lru_cache(maxsize=1024)
def add_to_gradient(derivative: Derivative, shift: int, results: int) -> Derivative | None:
    """With the gradient that acc gets by being a result itself, as another operand, in the outputs
    that are the gradients of acc and of the operand `shift`. None where there is no room, or no
    such output."""
    program, places = parse(derivative.text), derivative.places
    ours = [0] if shift == NOTHING else [0, 1 + shift]
    changed = sorted({places[index] for index in ours} - {NOTHING})
    if not changed or program.operands == MOST_OPERANDS or program.columns:
        return None
    others = [each for index, each in enumerate(places) if index not in ours]
    outputs, dtypes = list(program.outputs), derivative.out.split(",")
    lines: dict[Line, int] = {}
    new = {NOTHING: NOTHING}
    for place in changed:
        line = Line("add", (program.outputs[place], Operand(program.operands)))
        value = Value(lines.setdefault(line, len(program.lines) + len(lines)))
        new[place] = place
        if place in others:  # which get nothing by acc
            new[place] = len(outputs)
            outputs.append(value)
            dtypes.append(dtypes[place])
        outputs[new[place]] = value
    if len(outputs) > MOST_OUTPUTS:
        return None
    added = Program(program.operands + 1, (*program.lines, *lines), tuple(outputs))
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
        tuple(new[place] if index in ours else place for index, place in enumerate(places)),
    )


def _choose_outputs(
    program: Program, places, kinds: tuple[Kind, ...], inputs, wide: str
) -> tuple[list[int], list[str], list[int]]:
    """Which outputs of a gradient's program each of its outputs is to be, their dtypes, and the
    places of `inputs` among these; `places`: among the program's own.

    The gradient of a row or a scalar is a sum over the rows, unless the program is one of rows, or
    only copies acc, which is there already.
    """
    may_sum = not program.columns and program.text != COPY
    wanted = _group(places, kinds, inputs, may_sum)
    if len(wanted) > MOST_OUTPUTS:
        wanted = _group(places, kinds, inputs, False)
    order = sorted(wanted)
    chosen = [NOTHING] * len(places)
    for place, key in enumerate(order):
        for index, _, _ in wanted[key]:
            chosen[index] = place
    dtypes = [_choose_dtype(is_sum, wanted[source, is_sum], wide) for source, is_sum in order]
    return [source for source, _ in order], dtypes, chosen


def _group(places, kinds, inputs, may_sum: bool) -> dict[tuple[int, bool], list]:
    """The inputs, with their kinds and dtypes, by the output that is their gradient, and whether
    its sum over the rows is."""
    wanted: dict[tuple[int, bool], list[tuple[int, str, str]]] = {}
    for index, (place, (kind, _), dtype) in enumerate(zip(places, kinds, inputs, strict=False)):
        if place is not None:
            is_sum = may_sum and kind in (ROW, SCALAR)
            wanted.setdefault((place, is_sum), []).append((index, kind, dtype))
    return wanted


def _choose_dtype(is_sum: bool, members: list[tuple[int, str, str]], wide: str) -> str:
    """What PyTorch has yet to add up is not rounded, unless something else has the same gradient;
    and what several have is as wide as the widest of them."""
    kinds = {kind for _, kind, _ in members}
    dtypes = {dtype for _, _, dtype in members}
    is_whole = SCALAR not in kinds if is_sum else TILE in kinds
    dtype = dtypes.pop() if is_whole and len(dtypes) == 1 else wide
    return SUM + dtype if is_sum else dtype


def _find_index(argument, operands: int) -> int:
    if isinstance(argument, Acc):
        return 0
    return 1 + argument.index if isinstance(argument, Operand) else 1 + operands + argument
