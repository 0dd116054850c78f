"""The text of a program, read: for the CPU. On a GPU include/cutlass_fused/program/parse.hpp reads
it."""

import functools
import math
import re

from .program import (
    MOST_COLUMNS,
    VERSION,
    Acc,
    Argument,
    Line,
    Operand,
    Program,
    Value,
    check_size,
)
from .words import ALL_WORDS, BOOL, NUMBER, ROW_WORDS

_MOST_BYTES = 65536
_INDEX = r"(0|[1-9][0-9]{0,3})"
_WIDTH = r"([1-9][0-9]{0,7})"
_NUMBER = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}|-?inf|nan")


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Program:
    """Raises ValueError, with the line that is none of a program."""
    if len(text) > _MOST_BYTES:
        raise ValueError(f"a program must have at most {_MOST_BYTES} bytes, got {len(text)}")
    lines = text.split("\n")
    if lines.pop() != "":
        raise ValueError("a program must end with a newline")
    if lines[:1] != [f"program {VERSION}"]:
        raise ValueError(f'line 1 must be "program {VERSION}", got {_show(lines[:1])}')
    operands = re.fullmatch(f"operands {_INDEX}", lines[1] if len(lines) > 1 else "")
    if operands is None:
        raise ValueError(f'line 2 must be "operands" and their number, got {_show(lines[1:2])}')
    columns = re.fullmatch(f"columns {_WIDTH}", lines[2] if len(lines) > 2 else "")
    if columns is not None and int(columns[1]) > MOST_COLUMNS:
        raise ValueError(f"line 3 must have at most {MOST_COLUMNS} columns, got {columns[1]}")
    reader = _Reader(int(operands[1]), 0 if columns is None else int(columns[1]))
    first = 2 if columns is None else 3
    for number, line in enumerate(lines[first:], first + 1):
        try:
            reader.read(line)
        except ValueError as error:
            raise ValueError(f"line {number} {error}, got {_show([line])}") from None
    program = reader.finish()
    check_size(program)
    return program


def _show(lines: list[str]) -> str:
    """The first of them, or its first part, for a message."""
    return repr(lines[0][:80]) if lines else "the end of the text"


class _Reader:
    def __init__(self, operands: int, columns: int) -> None:
        self._operands, self._columns = operands, columns
        self._widths: tuple[int, ...] = ()
        self._lines: list[Line] = []
        self._outputs: tuple[Argument, ...] | None = None

    def read(self, line: str) -> None:
        if self._outputs is not None:
            raise ValueError("must not stand behind the outputs")
        first, *rest = line.split(" ")
        if first == "return":
            words, _, widths = zip(*(each.partition(":") for each in rest or [""]), strict=True)
            found = tuple(map(self._read_width, rest, widths))
            self._widths = () if set(found) == {1} else found
            self._outputs = self._read_arguments(list(words), "f" * len(words))
            return
        own = f"v{len(self._lines)}"
        if first != own or rest[:1] != ["="] or len(rest) < 2 or rest[1] not in ALL_WORDS:
            raise ValueError(f'must be "{own} = ", a word and its arguments, or the outputs')
        arguments = self._read_arguments(rest[2:], ALL_WORDS[rest[1]].arguments)
        if rest[1] in ROW_WORDS:
            self._check_width(arguments[1])
        self._lines.append(Line(rest[1], arguments))

    def finish(self) -> Program:
        if self._outputs is None:
            raise ValueError("a program must have outputs, got none")
        return Program(
            self._operands, tuple(self._lines), self._outputs, self._columns, self._widths
        )

    def _check_width(self, width: float) -> None:
        is_whole = 1 <= width <= self._columns and width == int(width)
        if not (is_whole and self._columns % width == 0):
            raise ValueError(f"must have a width that divides the {self._columns} columns")

    def _read_width(self, word: str, width: str) -> int:
        if ":" not in word:
            return 1
        if not re.fullmatch(_WIDTH, width):
            raise ValueError("must have a width behind the colon")
        self._check_width(int(width))
        return int(width)

    def _read_arguments(self, words: list[str], kinds: str) -> tuple[Argument, ...]:
        if len(words) != len(kinds):
            raise ValueError(f"must have arguments {kinds}")
        return tuple(map(self._read_argument, words, kinds))

    def _read_argument(self, word: str, kind: str) -> Argument:
        if _NUMBER.fullmatch(word) and kind != BOOL:
            return _read_number(word)
        if word == "acc" and kind not in (BOOL, NUMBER):
            return Acc()
        found = re.fullmatch(f"([pv]){_INDEX}", word)
        if found is None or kind == NUMBER:
            raise ValueError(f"must have arguments {kind}")
        index = int(found[2])
        if found[1] == "p" and index < self._operands and kind != BOOL:
            return Operand(index)
        if found[1] == "v" and index < len(self._lines):
            if (ALL_WORDS[self._lines[index].word].result == BOOL) == (kind == BOOL):
                return Value(index)
        raise ValueError(f"must have an argument {kind} in place of {word}")


def _read_number(word: str) -> float:
    try:
        return float.fromhex(word)
    except OverflowError:  # an exponent beyond those of a double
        return -math.inf if word[0] == "-" else math.inf
