"""Activations as the words that they are, of the arithmetic that Inductor makes of them.

A word has a kernel that comes with the library, and knows its own NaN: a `where` behind a product
of split rows costs a kernel of its own.
"""

import math
from typing import NamedTuple

from ....programs.program import Line, Value
from ....programs.tracing.builder import Builder, Known
from .match import match

_SQRT_HALF = math.sqrt(0.5)  # of gelu
_GELU_CUBE, _GELU_SCALE = 0.044715, math.sqrt(2 / math.pi)  # of its approximation by tanh


class _Form(NamedTuple):
    """line: a pattern (`match`). word: what is written in its place; a function there gets the
    names and what they are."""

    line: tuple
    word: tuple


def _elu(positive, negative):
    """positive * x where x > 0, else negative * expm1(x); as PyTorch has alpha."""
    scale = {"S": 1.0}
    line = ("where", ("gt", "x", 0.0), positive, negative)
    return _Form(line, ("elu", "x", lambda f: f.get("N", 1.0) / (scale | f)["S"], "S", 1.0))


_EXPM1 = ("expm1", "x")
_CUBE = ("mul", ("mul", "x", "x"), "x")
_INNER = ("mul", ("add", "x", ("mul", _CUBE, _GELU_CUBE)), _GELU_SCALE)
_SIX = ("clamp", ("add", "x", 3.0), 0.0, 6.0)

_FORMS = (
    _Form(("pow", "x", 2.0), ("mul", "x", "x")),
    _Form(("pow", "x", 0.5), ("sqrt", "x")),
    # Of a batch norm in eval: one instruction for two sequences of them, each with a branch.
    _Form(("reciprocal", ("sqrt", "x")), ("rsqrt", "x")),
    _Form(("clamp", ("clamp", "x", "L", math.inf), -math.inf, "H"), ("clamp", "x", "L", "H")),
    _Form(("where", ("gt", "x", 0.0), "x", ("mul", "x", "S")), ("leaky_relu", "x", "S")),
    _Form(("where", ("gt", "x", 0.0), "x", ("mul", "x", "slope")), ("prelu", "x", "slope")),
    _Form(("where", ("le", "x", "T"), "V", "x"), ("threshold", "x", "T", "V")),
    _elu("x", _EXPM1),
    _elu("x", ("mul", _EXPM1, "N")),
    _elu(("mul", "x", "S"), ("mul", _EXPM1, "N")),
    _Form(  # of celu
        ("where", ("gt", "x", 0.0), "x", ("mul", ("expm1", ("div", "x", "A")), "A")),
        ("elu", "x", "A", 1.0, lambda found: 1.0 / found["A"]),
    ),
    _Form(
        ("where", ("gt", "x", "T"), "x", ("log1p", ("exp", "x"))),
        ("softplus", "x", 1.0, "T"),
    ),
    _Form(
        (
            "where",
            ("gt", ("mul", "x", "B"), "T"),
            "x",
            ("div", ("log1p", ("exp", ("mul", "x", "B"))), "B"),
        ),
        ("softplus", "x", "B", "T"),
    ),
    _Form(("mul", "x", ("tanh", ("softplus", "x", 1.0, 20.0))), ("mish", "x")),
    _Form(("mul", "x", ("sigmoid", "x")), ("silu", "x")),
    _Form(("div", "x", ("add", ("exp", ("neg", "x")), 1.0)), ("silu", "x")),
    _Form(("div", ("mul", "x", _SIX), 6.0), ("hardswish", "x")),
    _Form(("div", _SIX, 6.0), ("hardsigmoid", "x")),
    _Form(
        ("mul", ("mul", "x", 0.5), ("add", ("erf", ("mul", "x", _SQRT_HALF)), 1.0)), ("gelu", "x")
    ),
    _Form(("mul", ("mul", "x", 0.5), ("add", ("tanh", _INNER), 1.0)), ("gelu_tanh", "x")),
    _Form(
        ("sub", ("minimum", "x", 0.0), ("log1p", ("exp", ("neg", ("abs", "x"))))),
        ("log_sigmoid", "x"),
    ),
)
_BY_WORD: dict[str, list[_Form]] = {}
for _form in _FORMS:
    _BY_WORD.setdefault(_form.line[0], []).append(_form)


class Recomposer(Builder):
    """A Builder that finds activations in what is added. Lines that nothing reads any more are in
    no program."""

    @property
    def lines(self) -> list[Line]:
        return self._lines

    def add(self, word: str, *arguments: Known) -> Known:
        value = super().add(word, *arguments)
        if isinstance(value, Value):
            for form in _BY_WORD.get(self._lines[value.index].word, ()):
                found = match(self._lines, form.line, value)
                if found is not None:
                    new, *rest = form.word
                    return self.add(new, *(_fill(each, found) for each in rest))
        return value


def _fill(part, found: dict):
    if callable(part):
        return part(found)
    if isinstance(part, str):
        return found.get(part, 1.0)
    return part
