"""Lines of a program, and patterns of them."""

from collections.abc import Sequence

from ....programs.program import Acc, Argument, Line, Value
from ....programs.words import COMMUTATIVE


def match(lines: Sequence[Line], pattern, argument: Argument, found: dict | None = None):
    """What the names of a pattern are, beside those that are found already; None where the argument
    is not of this form.

    A pattern is a tuple of a word and the patterns of its arguments, a number, Acc, or a name of
    anything: in capitals of a number.
    """
    found = found or {}
    if isinstance(pattern, (float, Acc)):
        return found if _is_same(pattern, argument) else None
    if isinstance(pattern, str):
        if pattern.isupper() and not isinstance(argument, float):
            return None
        if pattern in found:
            return found if _is_same(found[pattern], argument) else None
        return found | {pattern: argument}
    if not isinstance(argument, Value):
        return None
    line = lines[argument.index]
    word, *parts = pattern
    if line.word != word:
        return None
    matched = _match_all(lines, parts, line.arguments, found)
    if matched is None and word in COMMUTATIVE:
        matched = _match_all(lines, parts, line.arguments[::-1], found)
    return matched


def _match_all(lines, patterns, arguments, found: dict) -> dict | None:
    for pattern, argument in zip(patterns, arguments, strict=True):
        found = match(lines, pattern, argument, found)
        if found is None:
            return None
    return found


def _is_same(a: Argument, b: Argument) -> bool:
    return a == b and isinstance(a, float) == isinstance(b, float)
