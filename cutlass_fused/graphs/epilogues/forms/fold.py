"""Fewer rows beside a product: (acc + bias) - mean is acc + (bias - mean), whose row a kernel of
Inductor's computes.

A shift and what follows it are centred still: no mean is multiplied into a shift behind it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import fx

from ....programs.operands import ROW, SCALAR
from ....programs.program import Line, Operand, Program, Value
from ....programs.tracing.builder import Builder
from .match import match


class Shift(NamedTuple):
    """sign * first * scale + other_sign * second, in fp32; (N,). scale None is 1."""

    first: "fx.Node | Shift"
    sign: float
    scale: fx.Node | float | None
    second: "fx.Node | Shift"
    other_sign: float


Source = fx.Node | Shift
_SIGNS = {"add": 1.0, "sub": -1.0}


def fold_rows(
    program: Program, sources: Sequence[Source], kinds: Sequence[str], most: int
) -> tuple[Program, list[Source], list[str]]:
    """With at most so many rows, if that can be; and what its operands are."""
    sources, kinds = list(sources), list(kinds)
    while _count_rows(program, kinds) > most:
        found = _fold_one(program, sources, kinds)
        if found is None:
            break
        program = found
    return program, sources, kinds


def _count_rows(program: Program, kinds: Sequence[str]) -> int:
    reads = [each.index for each in program.reads if isinstance(each, Operand)]
    return sum(kinds[index] == ROW for index in reads)


def _fold_one(program: Program, sources: list[Source], kinds: list[str]) -> Program | None:
    lines = program.lines
    uses = [each for line in lines for each in line.arguments] + list(program.outputs)

    def is_row(argument) -> bool:
        return isinstance(argument, Operand) and kinds[argument.index] == ROW

    def is_scale(argument) -> bool:
        if isinstance(argument, float):
            return True
        return isinstance(argument, Operand) and kinds[argument.index] in (ROW, SCALAR)

    for index in range(len(lines)):
        for word in _SIGNS:
            for inner in _SIGNS:
                for scaled in (False, True):
                    z = (inner, "z", "a")
                    form = (word, ("mul", z, "s") if scaled else z, "b")
                    found = match(lines, form, Value(index))
                    if found is None or not is_row(found["a"]) or not is_row(found["b"]):
                        continue
                    if scaled and not is_scale(found["s"]):
                        continue
                    between = _find_between(lines, index, scaled)
                    if between is None or any(uses.count(each) != 1 for each in between):
                        continue
                    return _rewrite(program, index, found, (inner, word), sources, kinds)
    return None


def _find_between(lines: Sequence[Line], index: int, scaled: bool) -> list[Value] | None:
    """The values that nothing else may read."""
    found = []
    for _ in range(1 + scaled):
        inner = [each for each in lines[index].arguments if isinstance(each, Value)]
        if not inner:
            return None
        found.append(inner[0])
        index = inner[0].index
    return found


def _rewrite(program, index, found, words, sources, kinds) -> Program:
    scale = found.get("s")
    given = sources[scale.index] if isinstance(scale, Operand) else scale
    first, second = (sources[found[name].index] for name in "ab")
    sources.append(Shift(first, _SIGNS[words[0]], given, second, _SIGNS[words[1]]))
    kinds.append(ROW)
    builder, new = Builder(), {}
    for number, line in enumerate(program.lines):
        if number == index:
            z = new.get(found["z"], found["z"])
            z = z if scale is None else builder.add("mul", z, scale)
            value = builder.add("add", z, Operand(len(sources) - 1))
        else:
            value = builder.add(line.word, *(new.get(each, each) for each in line.arguments))
        new[Value(number)] = value
    outputs = [new.get(each, each) for each in program.outputs]
    return builder.finish(len(sources), outputs, program.columns, program.widths)
