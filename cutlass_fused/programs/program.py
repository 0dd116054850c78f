"""A program: its lines, its text, and what it computes in PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .words import ALL_WORDS, BOOL, FLOAT, ROW_WORDS

VERSION = 1
MOST_OPERANDS, MOST_LINES, MOST_OUTPUTS = 16, 256, 8
MOST_COLUMNS = 1 << 24
SUM = "sum:"  # in front of a dtype: of the sum over the rows


@dataclass(frozen=True)
class Acc:
    """An element of the product."""

    def __str__(self) -> str:
        return "acc"


@dataclass(frozen=True)
class Operand:
    """Element of the operand of this index."""

    index: int

    def __str__(self) -> str:
        return f"p{self.index}"


@dataclass(frozen=True)
class Value:
    """The result of the line of this index."""

    index: int

    def __str__(self) -> str:
        return f"v{self.index}"


# A float is a number: -0.0 and NaN too, so that its hex() and not its value tells two apart.
Argument = Acc | Operand | Value | float


@dataclass(frozen=True)
class Line:
    word: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return " ".join([self.word, *map(write, self.arguments)])


@dataclass(frozen=True)
class Program:
    """columns: how many a row has, where some are added or compared; 0 is any number.
    widths: of each output, how many columns side by side have one element; () is 1 of all.
    """

    operands: int
    lines: tuple[Line, ...]
    outputs: tuple[Argument, ...]
    columns: int = 0
    widths: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """What ops are given."""
        lines = [f"v{index} = {line}" for index, line in enumerate(self.lines)]
        widths = self.widths or (1,) * len(self.outputs)
        named = [
            write(output) if width == 1 else f"{write(output)}:{width}"
            for output, width in zip(self.outputs, widths, strict=True)
        ]
        head = [f"program {VERSION}", f"operands {self.operands}"]
        head += [f"columns {self.columns}"] if self.columns else []
        return "\n".join([*head, *lines, " ".join(["return", *named]), ""])

    @property
    def reads(self) -> frozenset[Argument]:
        """acc and the operands that some line or output reads."""
        arguments = [argument for line in self.lines for argument in line.arguments]
        return frozenset(
            each for each in (*arguments, *self.outputs) if isinstance(each, (Acc, Operand))
        )


def keep_operands(program: Program, kept: Sequence[int], acc: Argument | None = None) -> Program:
    """With the operands of these indices alone, in their order, and Acc in place of `acc`."""
    places: dict[Argument, Argument] = {Operand(old): Operand(new) for new, old in enumerate(kept)}
    if acc is not None:
        places[acc] = Acc()
    lines = [
        Line(line.word, tuple(places.get(each, each) for each in line.arguments))
        for line in program.lines
    ]
    outputs = tuple(places.get(each, each) for each in program.outputs)
    return Program(len(kept), tuple(lines), outputs, program.columns, program.widths)


def check_size(program: Program) -> None:
    """Raises ValueError for one that no kernel is made of."""
    for name, count, most in (
        ("operands", program.operands, MOST_OPERANDS),
        ("words", len(program.lines), MOST_LINES),
        ("outputs", len(program.outputs), MOST_OUTPUTS),
    ):
        if count > most:
            raise ValueError(f"it must have at most {most} {name}, got {count}")


def find_sums(out: str) -> tuple[bool, ...]:
    """Of each result, by the dtypes that an op is given, whether it is the sum over the rows."""
    return tuple(each.startswith(SUM) for each in out.split(","))


def write(argument: Argument) -> str:
    return argument.hex() if isinstance(argument, float) else str(argument)


def run(program: Program, acc: Tensor, operands: Sequence[Tensor]) -> list[Tensor]:
    """The outputs in the dtype of acc, which is that of the operands too, and of their shape.

    An output of operands that are smaller than acc may be smaller itself.
    """
    values: list[Tensor] = []

    def find(argument: Argument) -> Tensor | float:
        if isinstance(argument, Acc):
            return acc
        if isinstance(argument, Operand):
            return operands[argument.index]
        return values[argument.index] if isinstance(argument, Value) else argument

    for line in program.lines:
        word = ALL_WORDS[line.word]
        arguments = [find(each) for each in line.arguments]
        if line.word in ROW_WORDS:
            x, width = arguments
            whole = x.expand_as(acc) if isinstance(x, Tensor) else torch.full_like(acc, x)
            arguments = [whole, width]
        elif not (word.takes_numbers and isinstance(arguments[0], Tensor)):
            arguments = [
                acc.new_full((), each) if kind == FLOAT and isinstance(each, float) else each
                for kind, each in zip(word.arguments, arguments, strict=True)
            ]
        value = word.run(*arguments)
        values.append(value if word.result == BOOL else value.to(acc.dtype))
    outputs = map(find, program.outputs)
    return [acc.new_full((), each) if isinstance(each, float) else each for each in outputs]


def run_whole(program: Program, acc: Tensor, operands: Sequence[Tensor]) -> list[Tensor]:
    """The same, each as wide as it says: (..., N / width)."""
    outputs = [each.expand_as(acc) for each in run(program, acc, operands)]
    widths = program.widths or (1,) * len(outputs)
    return [
        each if width == 1 else each[..., ::width]
        for each, width in zip(outputs, widths, strict=True)
    ]
