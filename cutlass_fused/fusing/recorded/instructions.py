"""What single instructions of a forward do that no stand-in can see: they compare by `is`, write
attributes, and read those of modules and classes of Python. They are judged before they run, with
what variables then are."""

import builtins
import functools
import sys
import types
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.fx import Node, Proxy

from ...nn._parts import has_hooks
from .bytecode import ITEM, Value, Watched, find_watched
from .chains import find_name
from .code import Declined, check_telling, is_of_torch, is_of_user, is_outside
from .constants import DESCRIPTORS, is_constant

_UNKNOWN = object()
_PLACES = ("_parameters", "_buffers", "_modules")
# Of whose results the items are tensors.
_OF_TENSORS = ("chunk", "split", "unbind", "tensor_split", "topk", "max", "min", "sort", "meshgrid")
_GIVE_SEVERAL = ("getitem", "multi_head_attention_forward")
_GIVE_ONE = (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.BatchNorm1d)


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


def _read(frame: types.FrameType, value: Value):
    if value.place == "fast":
        return frame.f_locals.get(value.name)
    return frame.f_globals.get(value.name, vars(builtins).get(value.name))


def _resolve(root, attributes: Sequence[str]):
    """What they lead to, without a call of anything: for a stand-in of a tensor that tensor. None:
    it is not there; _UNKNOWN: a property, say."""
    for name in attributes:
        if isinstance(root, (types.ModuleType, type)):
            root = _find_attribute(root, name)
        elif isinstance(root, torch.nn.Module):
            if name == ITEM:
                return None  # a module or a tensor, or it is seen as it is
            root = _find_of_module(root, name)
        elif isinstance(root, tuple) and name in getattr(root, "_fields", ()):
            root = root[root._fields.index(name)]
        elif not isinstance(root, Proxy) and name in getattr(root, "__dict__", {}):
            root = root.__dict__[name]
        else:
            return _UNKNOWN
    return root


def _find_of_module(module: torch.nn.Module, name: str):
    held = module.__dict__
    for place in (held, *(held[each] for each in _PLACES)):
        if name in place:
            return place[name]
    found = _find_attribute(type(module), name)
    return _UNKNOWN if isinstance(found, (property, functools.cached_property)) else found


def _check_is(frame: types.FrameType, watched: Watched) -> None:
    name = frame.f_code.co_name
    values = [each for each in (watched.value, watched.other) if isinstance(each, Value)]
    for value in values if watched.value is not None else [None]:
        found = _UNKNOWN
        if value is not None:
            root = _read(frame, value)
            if not (isinstance(root, Proxy) and value.attributes):
                found = _resolve(root, value.attributes)
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
    """Whether it stands for a tensor, of which an item is another."""
    if node.op == "call_module":
        return _is_something(node) and type(node.meta["module"]) in _GIVE_ONE
    return _is_something(node) and find_name(node) not in _GIVE_SEVERAL


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
