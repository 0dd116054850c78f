"""What single instructions of a forward do that no stand-in can see: they compare by `is`, write
attributes, and read those of modules and classes of Python. They are judged before they run."""

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node, Proxy

from .code import Declined, is_of_torch, is_of_user, is_outside
from .constants import is_constant

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_WRITES = ("STORE_ATTR", "DELETE_ATTR")
_SINGLE = (None, True, False, ...)
_ITEM = "[]"  # among attributes
# Of a class, what is found in it and is no value of its own.
_DESCRIPTORS = (classmethod, staticmethod, property, functools.cached_property, types.GenericAlias)
_DESCRIPTORS += (types.MemberDescriptorType, types.GetSetDescriptorType)


class Value(NamedTuple):
    """A variable, and attributes of it: "fast" or "global", its name, theirs."""

    place: str
    name: str
    attributes: tuple[str, ...]


class Watched(NamedTuple):
    """what: "is", "write" or "read". value: of what; None: that cannot be told. other: what it is
    compared with. attribute: the one that is read."""

    what: str
    value: Value | None
    other: object = None
    attribute: str = ""


class Traced:
    """Within, trace(frame) is called in front of each call of a Python function in this thread:
    what it gives is called for each instruction of the function. No generator: what Python's
    library would do for one would be traced, too."""

    def __init__(self, trace: Callable, is_blind: bool = False) -> None:
        self._trace, self._is_blind = trace, is_blind

    def __enter__(self) -> None:
        self._frame = sys._getframe(1)
        self._frame.f_trace_opcodes = True  # in Python 3.12 no other frame has it without
        sys.settrace(self._begin)

    def __exit__(self, *_) -> None:
        sys.settrace(None)
        frame, self._frame = self._frame, None
        frame.f_trace_opcodes = False

    def _begin(self, frame: types.FrameType, event: str, _) -> Callable | None:
        follow = self._trace(frame)
        if follow is None:
            return None
        if self._is_blind:
            raise Declined(f"this Python does not tell what {frame.f_code.co_name} does")
        frame.f_trace = follow  # in Python 3.13 in front of what asks for instructions
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return follow


@functools.cache
def sees_instructions() -> bool:
    """Whether this Python calls a function for each instruction."""
    seen: list[str] = []

    def asked(x):
        return x is None

    def follow(frame, event, _):
        seen.append(event)
        return follow

    with Traced(lambda frame: follow if frame.f_code is asked.__code__ else None):
        asked(0)
    return "opcode" in seen


def trace_instructions(frame: types.FrameType) -> Callable | None:
    """For `Traced`. What it gives raises Declined."""
    name = frame.f_code.co_filename
    if not is_of_user(name) or is_of_torch(name) or not find_watched(frame.f_code):
        return None
    return _check_instruction


def _check_instruction(frame: types.FrameType, event: str, _) -> Callable:
    if event == "opcode":
        watched = find_watched(frame.f_code).get(frame.f_lasti)
        if watched is not None:
            _CHECKS[watched.what](frame, watched)
    return _check_instruction


@functools.lru_cache(maxsize=4096)
def find_watched(code: types.CodeType) -> dict[int, Watched]:
    """By the offsets of instructions."""
    found, lines = {}, _list_instructions(code)
    for index, (each, _) in enumerate(lines):
        name = each.opname
        if name == "IS_OP":
            is_single, other = _find_single(lines[index - 1][0])
            value = _find_value(lines, index - 2, index) if is_single else None
            found[each.offset] = Watched("is", value, other)
        elif name.endswith(("IF_NONE", "IF_NOT_NONE")):
            found[each.offset] = Watched("is", _find_value(lines, index - 1, index))
        elif name in _WRITES:
            found[each.offset] = Watched("write", _find_owner(lines, index))
        elif name in _READS:
            value = _find_value(lines, index - 1, index)
            if value is not None:
                found[each.offset] = Watched("read", value, attribute=each.argval)
    return found


def _list_instructions(code: types.CodeType) -> list[tuple[dis.Instruction, bool]]:
    """Each with whether something jumps to it."""
    found, is_target = [], False
    for each in dis.get_instructions(code):
        is_target |= each.is_jump_target
        if each.opname not in ("EXTENDED_ARG", "CACHE", "NOP"):
            found.append((each, is_target))
            is_target = False
    return found


def _find_single(instruction: dis.Instruction) -> tuple[bool, object]:
    is_single = instruction.opname == "LOAD_CONST"
    is_single = is_single and any(instruction.argval is each for each in _SINGLE)
    return is_single, instruction.argval if is_single else None


def _find_value(lines, last: int, behind: int) -> Value | None:
    """What the instructions up to `last` leave on the stack: where nothing jumps between them and
    what is behind."""
    first, attributes = last, []
    while first >= 0:
        opname = lines[first][0].opname
        if opname in _READS:
            attributes.append(lines[first][0].argval)
            first -= 1
        elif opname == "BINARY_SUBSCR" and _is_load(lines[first - 1][0]):
            attributes.append(_ITEM)
            first -= 2
        elif (before := _find_getattr(lines, first)) is not None:
            first, name = before
            attributes.append(name)
        else:
            break
    if first < 0 or any(is_target for _, is_target in lines[first + 1 : behind + 1]):
        return None
    opname, name = lines[first][0].opname, lines[first][0].argval
    if isinstance(name, tuple):  # of an instruction for two variables
        name = name[-1]
    of_global = opname in ("LOAD_GLOBAL", "LOAD_NAME")
    if of_global or opname == "LOAD_DEREF" or "LOAD_FAST" in opname:
        return Value("global" if of_global else "fast", name, tuple(reversed(attributes)))
    return None


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
        return _find_value(lines, index - 1, index)
    for first in range(index - 2, 1, -1):
        is_read = lines[first][0].opname in _READS
        is_read = is_read and lines[first][0].argval == lines[index][0].argval
        if is_read and lines[first - 1][0].opname in ("COPY", "DUP_TOP"):
            return _find_value(lines, first - 2, first)
    return None


def _read(frame: types.FrameType, value: Value):
    if value.place == "fast":
        return frame.f_locals.get(value.name)
    return frame.f_globals.get(value.name, vars(builtins).get(value.name))


def _check_is(frame: types.FrameType, watched: Watched) -> None:
    name = frame.f_code.co_name
    if watched.value is None:
        raise Declined(f"{name} compares by `is` what a recording cannot tell")
    root, attributes = _read(frame, watched.value), watched.value.attributes
    if isinstance(root, torch.nn.Module):
        return  # what it has is a tensor, or it is seen as it is
    if not isinstance(root, Proxy) and _ITEM not in attributes:
        return
    if _ITEM in attributes:
        raise Declined(f"{name} compares by `is` what a recording cannot tell")
    if attributes or watched.other is not None or not _is_something(root.node):
        raise Declined(f"{name} compares a tensor, or what it asks of one, by `is`")


def _is_something(node: Node) -> bool:
    """Whether it cannot stand for None."""
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op == "call_module":
        return isinstance(node.meta["module"], (torch.nn.Linear, torch.nn.LayerNorm))
    if node.op == "call_method":
        is_tensor = isinstance(node.args[0], Node) and _is_something(node.args[0])
        return is_tensor and hasattr(Tensor, node.target)
    module = getattr(node.target, "__module__", None) or ""
    is_known = module.startswith("torch") or module == "_operator"
    return is_known and getattr(node.target, "__name__", "") not in ("getattr", "getitem")


def _check_write(frame: types.FrameType, watched: Watched) -> None:
    """Modules and stand-ins see it themselves, and an object that is being made is nobody else's
    yet."""
    code, value = frame.f_code, watched.value
    if value is not None:
        if isinstance(_read(frame, value), (Proxy, torch.nn.Module)):
            return
        if code.co_name == "__init__" and value == Value("fast", code.co_varnames[0], ()):
            return
    raise Declined(f"{code.co_name} writes an attribute of what may be seen elsewhere")


def _check_read(frame: types.FrameType, watched: Watched) -> None:
    root, name = _read(frame, watched.value), watched.attribute
    for each in watched.value.attributes:
        if not isinstance(root, (types.ModuleType, type)):
            return
        root = _find_attribute(root, each)
    if isinstance(root, types.FunctionType) and name in vars(root):
        raise Declined(f"it reads {name} of a function, which may change unseen")
    if not isinstance(root, (types.ModuleType, type)):
        return
    value = _find_attribute(root, name)
    if is_outside(root) or is_outside(value):
        raise Declined(f"{frame.f_code.co_name} uses {name}, which a recording cannot follow")
    is_known = is_constant(value) or isinstance(value, (types.ModuleType, *_DESCRIPTORS))
    if not is_known and not isinstance(value, (Tensor, torch.nn.Module, torch.autograd.Function)):
        kind, of = type(value).__name__, root.__name__
        if not (isinstance(root, types.ModuleType) and callable(value)):
            raise Declined(f"it reads {name} of {of}, a {kind} that may change unseen")


def _find_attribute(owner: types.ModuleType | type, name: str):
    """Without a call of anything; None: it is not there as a value."""
    for each in owner.__mro__ if isinstance(owner, type) else (owner,):
        if name in vars(each):
            return vars(each)[name]
    return None


_CHECKS = {"is": _check_is, "write": _check_write, "read": _check_read}
