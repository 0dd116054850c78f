"""Puts a program together, word by word."""

import torch

from ..program import Argument, Line, Program, Value
from ..words import ALL_WORDS, BOOL, COMMUTATIVE, FLOAT, ROW_WORDS

# A truth that is known is no argument of a program.
Known = Argument | bool


class Builder:
    """What is computed twice gets one line; what is computed of constants alone, none."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._values: dict[str, Value] = {}

    def add(self, word: str, *arguments: Known) -> Known:
        """The result of a word. Truths become 0 and 1 where it takes floats."""
        kinds = ALL_WORDS[word].arguments
        if word in ROW_WORDS:
            known = self._merge_known(word, *arguments)
            if known is not None:
                return known
        if word in COMMUTATIVE and isinstance(arguments[0], (float, bool)):
            arguments = arguments[::-1]
        if all(isinstance(argument, (float, bool)) for argument in arguments):
            return _fold(word, arguments)
        if BOOL in kinds and any(isinstance(argument, bool) for argument in arguments):
            return self._add_known(word, *arguments)
        if word in ("mul", "div") and arguments[1] == 1.0:
            return self._as_float(arguments[0])
        converted = [
            argument if kind == BOOL else self._as_float(argument)
            for kind, argument in zip(kinds, arguments, strict=True)
        ]
        line = Line(word, tuple(converted))
        # By the text, in which -0.0 and 0.0 are two numbers, and NaN is one.
        if str(line) not in self._values:
            self._values[str(line)] = Value(len(self._lines))
            self._lines.append(line)
        return self._values[str(line)]

    def is_truth(self, argument: Known) -> bool:
        if isinstance(argument, Value):
            return ALL_WORDS[self._lines[argument.index].word].result == BOOL
        return isinstance(argument, bool)

    def finish(
        self,
        operands: int,
        outputs: list[Known],
        columns: int = 0,
        widths: tuple[int, ...] = (),
    ) -> Program:
        """Without the lines that no output reads."""
        outputs = [self._as_float(output) for output in outputs]
        new: dict[Value, Value] = {}
        lines: list[Line] = []
        needed = self._find_needed(outputs)
        for index, line in enumerate(self._lines):
            if index in needed:
                new[Value(index)] = Value(len(lines))
                arguments = tuple(new.get(each, each) for each in line.arguments)
                lines.append(Line(line.word, arguments))
        outputs = [new.get(each, each) for each in outputs]
        widths = () if set(widths) == {1} else widths
        return Program(operands, tuple(lines), tuple(outputs), columns, widths)

    def _find_needed(self, outputs: list[Argument]) -> set[int]:
        needed: set[int] = set()
        waiting = list(outputs)
        while waiting:
            argument = waiting.pop()
            if isinstance(argument, Value) and argument.index not in needed:
                needed.add(argument.index)
                waiting += self._lines[argument.index].arguments
        return needed

    def _as_float(self, argument: Known) -> Argument:
        if isinstance(argument, bool):
            return float(argument)
        return self.add("float", argument) if self.is_truth(argument) else argument

    def _merge_known(self, word: str, x: Known, width: float) -> Known | None:
        """A group of one column, or of columns that all have the same number."""
        if ALL_WORDS[word].result == BOOL:
            return x if width == 1 or x is False else None
        if width == 1:
            return self._as_float(x)
        if isinstance(x, (float, bool)):
            return float(x) * width if word == "row_sum" else float(x)
        return None

    def _add_known(self, word: str, *arguments: Known) -> Known:
        """where, and, or and xor of a truth that is known, and of others that are not."""
        if word == "where":
            condition, x, y = arguments
            if isinstance(condition, bool):
                return self._as_float(x if condition else y)
            return self.add(word, condition, self._as_float(x), self._as_float(y))
        other, known = arguments if isinstance(arguments[1], bool) else arguments[::-1]
        if word == "xor":
            return self.add("not", other) if known else other
        return other if known == (word == "and") else known


def _fold(word: str, constants: tuple[float | bool, ...]) -> float | bool:
    """In float64: a kernel rounds numbers to fp32, and a reference in float64 does not."""
    kinds = {FLOAT: torch.float64, BOOL: torch.bool}
    values = [
        torch.tensor(constant, dtype=kinds[kind]) if kind in kinds else constant
        for kind, constant in zip(ALL_WORDS[word].arguments, constants, strict=True)
    ]
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        found = ALL_WORDS[word].run(*values)
    return bool(found) if ALL_WORDS[word].result == BOOL else float(found)
