"""Functions that read the sum of acc and an operand, such as a bias, and neither alone: it is the
sum that is kept for the gradient, which is then the same for both."""

import dataclasses

from ..program import Acc, Argument, Line, Operand, Program, Value
from .gradient import Gradient

_NONE = -1


def find_shift(forward: Program, gradient: Gradient) -> int:
    """The index of the operand; -1 where there is none, or nothing would read the sum."""
    if Acc() not in gradient.operands:
        return _NONE
    at = _find_sum(forward, Acc())
    if at is None:
        return _NONE
    other = _find_other(forward.lines[at], Acc())
    # In the gradient the same two are operands.
    if other is None or other not in gradient.operands:
        return _NONE
    acc, own = _find_operands(gradient, other)
    line = _find_sum(gradient.program, acc)
    if line is None or _find_other(gradient.program.lines[line], acc) != own:
        return _NONE
    if _count(forward, other) != 1 or _count(gradient.program, own) != 1:
        return _NONE
    return other.index


def keep_sum(forward: Program, shift: int) -> Program:
    """With the sum as its last output."""
    kept = Value(_find_sum(forward, Acc()))
    return Program(forward.operands, forward.lines, (*forward.outputs, kept))


def read_sum(gradient: Gradient, shift: int) -> Gradient:
    """With the sum in place of acc, and without the operand."""
    acc, own = _find_operands(gradient, Operand(shift))
    program = gradient.program
    at = _find_sum(program, acc)

    def find(argument: Argument) -> Argument:
        if argument == Value(at):
            return find(acc)
        if isinstance(argument, Value) and argument.index > at:
            return Value(argument.index - 1)
        if isinstance(argument, Operand) and argument.index > own.index:
            return Operand(argument.index - 1)
        return argument

    lines = [
        Line(line.word, tuple(map(find, line.arguments)))
        for index, line in enumerate(program.lines)
        if index != at
    ]
    outputs = tuple(map(find, program.outputs))
    operands = tuple(each for each in gradient.operands if each != Operand(shift))
    without = Program(program.operands - 1, tuple(lines), outputs)
    return dataclasses.replace(gradient, program=without, operands=operands)


def is_result_enough(forward: Program, gradient: Gradient) -> bool:
    """Whether the first output can be kept in place of the last, which is kept for the gradient:
    where it is its ReLU, and the gradient reads nothing but that, since the ReLU of a ReLU is the
    same. PyTorch's keeps its result, too."""
    if forward.columns or gradient.program.columns or Acc() not in gradient.operands:
        return False
    result, kept = forward.outputs[0], forward.outputs[-1]
    if not isinstance(result, Value) or forward.lines[result.index] != Line("relu", (kept,)):
        return False
    own, program = Operand(gradient.operands.index(Acc())), gradient.program
    readers = [line for line in program.lines if own in line.arguments]
    return own not in program.outputs and all(line.word == "relu" for line in readers)


def _find_sum(program: Program, argument: Argument) -> int | None:
    """The line that adds something to it, if nothing else reads it."""
    if _count(program, argument) != 1:
        return None
    for index, line in enumerate(program.lines):
        if argument in line.arguments:
            return index if line.word == "add" else None
    return None


def _find_other(line: Line, argument: Argument) -> Operand | None:
    others = [each for each in line.arguments if each != argument]
    return others[0] if len(others) == 1 and isinstance(others[0], Operand) else None


def _find_operands(gradient: Gradient, other: Operand) -> tuple[Operand, Operand]:
    """Of the gradient's program: what acc and the operand are there."""
    operands = gradient.operands
    return Operand(operands.index(Acc())), Operand(operands.index(other))


def _count(program: Program, argument: Argument) -> int:
    read = [each for line in program.lines for each in line.arguments]
    return [*read, *program.outputs].count(argument)
