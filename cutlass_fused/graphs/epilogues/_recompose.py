"""Activations as the words that they are, of the arithmetic that Inductor makes of them.

A word has a kernel that comes with the library, and knows its own NaN: a `where` behind a product
of split rows costs a kernel of its own.
"""

import math
from typing import NamedTuple

from ...programs.program import Argument, Value
from ...programs.tracing.builder import Builder, Known
from ...programs.words import COMMUTATIVE

_SQRT_HALF = math.sqrt(0.5)  # of gelu
_GELU_CUBE, _GELU_SCALE = 0.044715, math.sqrt(2 / math.pi)  # of its approximation by tanh


class _Form(NamedTuple):
    """A line and those that it reads, as tuples: words, numbers, and names of what is found there.

    Names in capitals are of numbers. `word` is what is written in its place; a function there gets
    the names and what they are.
    """

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

    def add(self, word: str, *arguments: Known) -> Known:
        value = super().add(word, *arguments)
        if isinstance(value, Value):
            for form in _BY_WORD.get(self._lines[value.index].word, ()):
                found = self._match(form.line, value, {})
                if found is not None:
                    new, *rest = form.word
                    return self.add(new, *(_fill(each, found) for each in rest))
        return value

    def _match(self, pattern, argument: Argument, found: dict) -> dict | None:
        """`found` with the names of the pattern, where the argument is of this form."""
        if isinstance(pattern, float):
            is_same = isinstance(argument, float) and argument == pattern
            return found if is_same else None
        if isinstance(pattern, str):
            if pattern.isupper() and not isinstance(argument, float):
                return None
            if pattern in found:
                return found if _is_same(found[pattern], argument) else None
            return found | {pattern: argument}
        if not isinstance(argument, Value):
            return None
        line = self._lines[argument.index]
        word, *parts = pattern
        if line.word != word:
            return None
        matched = self._match_all(parts, line.arguments, found)
        if matched is None and word in COMMUTATIVE:
            matched = self._match_all(parts, line.arguments[::-1], found)
        return matched

    def _match_all(self, patterns, arguments, found: dict) -> dict | None:
        for pattern, argument in zip(patterns, arguments, strict=True):
            found = self._match(pattern, argument, found)
            if found is None:
                return None
        return found


def _is_same(a: Argument, b: Argument) -> bool:
    return a.hex() == b.hex() if isinstance(a, float) and isinstance(b, float) else a == b


def _fill(part, found: dict):
    if callable(part):
        return part(found)
    if isinstance(part, str):
        return found.get(part, 1.0)
    return part
