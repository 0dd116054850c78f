"""What single instructions of a forward do that no stand-in can see: they compare by `is`, write
attributes, and read those of modules and classes of Python. They are judged before they run."""

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node, Proxy

from ...nn._parts import has_hooks
from .chains import find_name
from .code import Declined, check_telling, is_of_torch, is_of_user, is_outside
from .constants import DESCRIPTORS, is_constant

_READS = ("LOAD_ATTR", "LOAD_METHOD")
_WRITES = ("STORE_ATTR", "DELETE_ATTR")
_SINGLE = (None, True, False, ...)
_ITEM = "[]"  # among attributes
_UNKNOWN = object()
# Of whose results the items are tensors.
_OF_TENSORS = ("chunk", "split", "unbind", "tensor_split", "topk", "max", "min", "sort", "meshgrid")
_GIVE_ONE = (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.BatchNorm1d)


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
            attributes.append(_ITEM)
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


def _read(frame: types.FrameType, value: Value):
    if value.place == "fast":
        return frame.f_locals.get(value.name)
    return frame.f_globals.get(value.name, vars(builtins).get(value.name))


def _resolve(root, attributes: Sequence[str]):
    """What they lead to, without a call of anything: a stand-in of a tensor is that tensor. None:
    it is not there; _UNKNOWN: a property, say, or an item."""
    for name in attributes:
        held = getattr(root, "__dict__", {})
        places = [
            held,
            *(held.get(f"_{each}", {}) for each in ("parameters", "buffers", "modules")),
        ]
        if isinstance(root, tuple) and name in getattr(root, "_fields", ()):
            root = root[root._fields.index(name)]
        elif isinstance(root, torch.nn.Module) and any(name in each for each in places):
            root = next(each[name] for each in places if name in each)
        elif name == _ITEM and isinstance(root, torch.nn.Module):
            return None  # a module or a tensor, or it is seen as it is
        elif isinstance(root, (types.ModuleType, type)):
            root = _find_attribute(root, name)
        elif name in held and not isinstance(root, (Proxy, torch.nn.Module)):
            root = held[name]
        elif isinstance(root, torch.nn.Module):
            root = _find_attribute(type(root), name)
            if isinstance(root, (property, functools.cached_property)):
                return _UNKNOWN
        else:
            return _UNKNOWN
    return root


def _check_is(frame: types.FrameType, watched: Watched) -> None:
    name = frame.f_code.co_name
    if watched.value is None:
        raise Declined(f"{name} compares by `is` what a recording cannot tell")
    values = [watched.value]
    if isinstance(watched.other, Value):
        values.append(watched.other)
    for value in values:
        root = _read(frame, value)
        found = _UNKNOWN if isinstance(root, Proxy) and value.attributes else None
        found = found if found is _UNKNOWN else _resolve(root, value.attributes)
        if found is _UNKNOWN:
            raise Declined(f"{name} compares by `is` what a recording cannot tell")
        of_tensor = isinstance(found, Proxy) or (len(values) > 1 and isinstance(found, Tensor))
        is_told = watched.other is None and isinstance(found, Proxy) and _is_something(found.node)
        if of_tensor and not is_told:
            raise Declined(f"{name} compares a tensor, or what it asks of one, by `is`")


def _is_something(node: Node) -> bool:
    """Whether it cannot stand for None."""
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op == "call_module":
        module = node.meta["module"]
        is_torchs = type(module).__module__.startswith("torch.nn.modules.")
        return is_torchs and not has_hooks(module) and "forward" not in module.__dict__
    first = node.args[0] if node.args and isinstance(node.args[0], Node) else None
    if node.op == "call_method":
        return first is not None and _is_tensor(first) and hasattr(Tensor, node.target)
    name = getattr(node.target, "__name__", "")
    if name == "getitem":
        return first is not None and (_is_tensor(first) or find_name(first) in _OF_TENSORS)
    module = getattr(node.target, "__module__", None) or ""
    return name != "getattr" and (module.startswith("torch") or module == "_operator")


def _is_tensor(node: Node) -> bool:
    """Or at least an item of it is none."""
    if node.op == "call_module":
        return _is_something(node) and type(node.meta["module"]) in _GIVE_ONE
    return _is_something(node) and find_name(node) not in (
        "getitem",
        "multi_head_attention_forward",
    )


def _check_write(frame: types.FrameType, watched: Watched) -> None:
    """Modules and stand-ins see it themselves, and an object that is being made is nobody else's
    yet."""
    code, value = frame.f_code, watched.value
    if value is not None:
        root = _read(frame, value)
        if isinstance(root, Proxy) or isinstance(
            _resolve(root, value.attributes), (Proxy, Tensor, torch.nn.Module)
        ):
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
    if isinstance(root, (Proxy, torch.nn.Module)):
        return
    if isinstance(root, types.FunctionType) and name in vars(root):
        raise Declined(f"it reads {name} of a function, which may change unseen")
    if not isinstance(root, (types.ModuleType, type)):
        is_own = name in getattr(root, "__dict__", {})
        if not is_own and isinstance(_find_attribute(type(root), name), (list, dict, set)):
            raise Declined(f"it reads {name} of a class, which may change unseen")
        return
    value = _find_attribute(root, name)
    check_telling(name, value)
    if is_outside(root) and (callable(value) or not is_constant(value)):
        raise Declined(f"{frame.f_code.co_name} uses {name}, which a recording cannot follow")
    is_known = is_constant(value) or isinstance(value, (types.ModuleType, *DESCRIPTORS))
    if not is_known and not isinstance(value, (Tensor, torch.nn.Module, torch.autograd.Function)):
        kind, of = type(value).__name__, root.__name__
        is_class = callable(value) and not isinstance(value, types.FunctionType)
        if not (isinstance(root, types.ModuleType) and is_class):
            raise Declined(f"it reads {name} of {of}, a {kind} that may change unseen")


def _find_attribute(owner: types.ModuleType | type, name: str):
    """Without a call of anything; None: it is not there as a value."""
    for each in owner.__mro__ if isinstance(owner, type) else (owner,):
        if name in vars(each):
            return vars(each)[name]
    return None


_CHECKS = {"is": _check_is, "write": _check_write, "read": _check_read}
