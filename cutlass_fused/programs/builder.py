"""Puts a program together, word by word."""

import torch

from .program import Argument, Line, Program, Value
from .words import BOOL, COMMUTATIVE, FLOAT, WORDS


class Builder:
    """What is computed twice gets one line; what is computed of numbers alone, none."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._known: dict[str, Value] = {}

    def add(self, word: str, *arguments: Argument) -> Argument:
        """The result of a word. Truths become 0 and 1 where it takes floats."""
        kinds = WORDS[word].arguments
        if word in COMMUTATIVE and isinstance(arguments[0], float):
            arguments = arguments[::-1]
        if all(isinstance(argument, float) for argument in arguments):
            return _fold(word, arguments)
        if word in ("mul", "div") and arguments[1] == 1.0:
            return self._as_float(arguments[0])
        converted = [
            self._as_float(argument) if kind == FLOAT else argument
            for kind, argument in zip(kinds, arguments, strict=True)
        ]
        line = Line(word, tuple(converted))
        # By the text, in which -0.0 and 0.0 are two numbers, and NaN is one.
        if str(line) not in self._known:
            self._known[str(line)] = Value(len(self._lines))
            self._lines.append(line)
        return self._known[str(line)]

    def is_truth(self, argument: Argument) -> bool:
        return isinstance(argument, Value) and self._result(argument) == BOOL

    def finish(self, operands: int, outputs: list[Argument]) -> Program:
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
        return Program(operands, tuple(lines), tuple(new.get(each, each) for each in outputs))

    def _find_needed(self, outputs: list[Argument]) -> set[int]:
        needed: set[int] = set()
        waiting = list(outputs)
        while waiting:
            argument = waiting.pop()
            if isinstance(argument, Value) and argument.index not in needed:
                needed.add(argument.index)
                waiting += self._lines[argument.index].arguments
        return needed

    def _as_float(self, argument: Argument) -> Argument:
        return self.add("float", argument) if self.is_truth(argument) else argument

    def _result(self, value: Value) -> str:
        return WORDS[self._lines[value.index].word].result


def _fold(word: str, numbers: tuple[float, ...]) -> float:
    """In float64: a kernel rounds numbers to fp32, and a reference in float64 does not."""
    kinds = WORDS[word].arguments
    tensors = [
        torch.tensor(number, dtype=torch.float64) if kind == FLOAT else number
        for kind, number in zip(kinds, numbers, strict=True)
    ]
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return float(WORDS[word].run(*tensors))
