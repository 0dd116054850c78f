"""Which instructions of a function compare by `is`, and write or read attributes, and of what: as
far as its variables and their attributes tell."""

import dis
import functools
import types
from typing import NamedTuple

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_WRITES = ("STORE_ATTR", "DELETE_ATTR")
_SINGLE = (None, True, False, ...)
ITEM = "[]"  # among attributes


class Value(NamedTuple):
    """A variable, and attributes of it: "fast" or "global", its name, theirs."""

    place: str
    name: str
    attributes: tuple[str, ...]


class Watched(NamedTuple):
    """what: "is", "write" or "read". value: of what; None: that cannot be told. other: what it is
    compared with, None, say, or another Value. attribute: the one that is read."""

    what: str
    value: Value | None
    other: object = None
    attribute: str = ""


@functools.lru_cache(maxsize=4096)
def find_watched(code: types.CodeType) -> dict[int, Watched]:
    """By the offsets of instructions."""
    found, lines = {}, _list_instructions(code)
    for index, (each, _) in enumerate(lines):
        name = each.opname
        if name == "IS_OP":
            found[each.offset] = _find_comparison(lines, index)
        elif name.endswith(("IF_NONE", "IF_NOT_NONE")):
            found[each.offset] = Watched("is", _find_value(lines, index - 1, index)[0])
        elif name in _WRITES:
            found[each.offset] = Watched("write", _find_owner(lines, index))
        elif name in _READS:
            value, _ = _find_value(lines, index - 1, index)
            if value is not None:
                found[each.offset] = Watched("read", value, attribute=each.argval)
    return found


def _find_comparison(lines, index: int) -> Watched:
    right = lines[index - 1][0]
    if right.opname == "LOAD_CONST" and any(right.argval is each for each in _SINGLE):
        return Watched("is", _find_value(lines, index - 2, index)[0], right.argval)
    other, first = _find_value(lines, index - 1, index)
    pair = lines[first][0].argval if first >= 0 else None
    if isinstance(pair, tuple) and lines[first][0].opname.startswith("LOAD"):
        value = Value("fast", pair[0], ())  # both by one instruction
    else:
        value = _find_value(lines, first - 1, index)[0]
    return Watched("is", value if other is not None else None, other)


def _list_instructions(code: types.CodeType) -> list[tuple[dis.Instruction, bool]]:
    """Each with whether something jumps to it."""
    found, is_target = [], False
    for each in dis.get_instructions(code):
        is_target |= each.is_jump_target
        if each.opname not in ("EXTENDED_ARG", "CACHE", "NOP"):
            found.append((each, is_target))
            is_target = False
    return found


def _find_value(lines, last: int, behind: int) -> tuple[Value | None, int]:
    """What the instructions up to `last` leave on the stack, and where they begin: where nothing
    jumps between them and what is behind."""
    first, attributes = last, []
    while first >= 0:
        opname = lines[first][0].opname
        if opname in _READS:
            attributes.append(lines[first][0].argval)
            first -= 1
        elif opname == "BINARY_SUBSCR" and _is_load(lines[first - 1][0]):
            attributes.append(ITEM)
            first -= 2
        elif (before := _find_getattr(lines, first)) is not None:
            first, name = before
            attributes.append(name)
        else:
            break
    if first < 0 or any(is_target for _, is_target in lines[first + 1 : behind + 1]):
        return None, first
    opname, name = lines[first][0].opname, lines[first][0].argval
    if isinstance(name, tuple):  # of an instruction for two variables
        name = name[-1]
    of_global = opname in ("LOAD_GLOBAL", "LOAD_NAME")
    is_assigned = opname == "STORE_FAST" and lines[first - 1][0].opname in ("COPY", "DUP_TOP")
    if of_global or opname == "LOAD_DEREF" or "LOAD_FAST" in opname or is_assigned:
        value = Value("global" if of_global else "fast", name, tuple(reversed(attributes)))
        return value, first
    return None, first


def _is_load(instruction: dis.Instruction) -> bool:
    opname = instruction.opname
    return opname in ("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_SMALL_INT")


def _find_getattr(lines, last: int) -> tuple[int, str] | None:
    """Of `getattr(owner, name, default)` where the owner ends, and the name."""
    call = lines[last][0]
    if call.opname not in ("CALL", "CALL_FUNCTION") or call.arg != 3:
        return None
    index = last - (2 if lines[last - 1][0].opname == "PRECALL" else 1)
    name, default = lines[index - 1][0], lines[index][0]
    if name.opname != "LOAD_CONST" or default.opname != "LOAD_CONST":
        return None
    first = index - 2
    while first > 0 and lines[first][0].opname in _READS:
        first -= 1
    called = lines[first - 1][0]
    is_it = called.opname == "LOAD_GLOBAL" and called.argval == "getattr"
    return (index - 2, name.argval) if is_it and isinstance(name.argval, str) else None


def _find_owner(lines, index: int) -> Value | None:
    """Whose attribute the instruction writes. `owner.name += x` reads it first, of a copy."""
    if lines[index - 1][0].opname not in ("SWAP", "ROT_TWO"):
        return _find_value(lines, index - 1, index)[0]
    for first in range(index - 2, 1, -1):
        is_read = lines[first][0].opname in _READS
        is_read = is_read and lines[first][0].argval == lines[index][0].argval
        if is_read and lines[first - 1][0].opname in ("COPY", "DUP_TOP"):
            return _find_value(lines, first - 2, first)[0]
    return None
