"""The graph of a module's forward, and what of the module it depends on.

The forward runs once with stand-ins for its tensors, as in torch.fx. That tool alone would keep
silently what was true on that day: an attribute, a mode, a branch. Here every attribute that the
forward reads is noted, so that a call can see whether it still holds, and what a recording cannot
follow is declined.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, Proxy
from torch.utils._python_dispatch import TorchDispatchMode

from ...nn._parts import HOOKS, has_hooks
from .code import (
    Declined,
    check_code,
    check_machinery,
    check_names,
    check_telling,
    is_of_forward,
    is_of_user,
)
from .constants import DESCRIPTORS, is_constant
from .instructions import Traced, sees_instructions, trace_instructions
from .reach import find_others, is_of_fields, may_write
from .stand_ins import StandIn

_MISSING = object()
# Methods of a module that change it, and write to its dictionaries themselves.
_CHANGERS = (
    *(name for name in vars(torch.nn.Module) if name.lstrip("_").startswith("register_")),
    *("add_module", "_apply", "load_state_dict", "zero_grad", "requires_grad_"),
)
# torch.fx's stand-ins are made by replacing methods of torch.nn.Module, for all threads.
_LOCK = threading.RLock()


class Read(NamedTuple):
    """place: a dictionary of a module, or of its class, in which `name` was `value`; _MISSING: it
    was not there."""

    place: Mapping
    name: str
    value: Any


class Recording(NamedTuple):
    """graph: its call_module nodes have meta["module"], its get_attr nodes meta["owner"] and
    meta["name"].
    required: names of the arguments that stand-ins were given for.
    defaults: the other arguments, each with the default that it had.
    reads: what must still hold.
    counts: dictionaries of children whose number must still hold.
    inlined: the Sequentials whose children it calls itself.
    """

    graph: Graph
    required: tuple[str, ...]
    defaults: dict[str, Any]
    reads: list[Read]
    counts: list[tuple[dict, int]]
    inlined: tuple[torch.nn.Module, ...]


def record(module: torch.nn.Module) -> Recording:
    """Raises Declined, with the reason."""
    forward = type(module).forward
    if not isinstance(forward, types.FunctionType):
        raise Declined("its forward is no Python function")
    if inspect.unwrap(forward) is not forward:
        raise Declined("a decorator stands around its forward")
    if isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule)):
        raise Declined(f"it is a {type(module).__name__}")
    required, defaults = _read_arguments(forward)
    tracer = _Tracer(module)
    with _LOCK, tracer.patched():
        try:
            proxies = [tracer.create_proxy("placeholder", name, (), {}) for name in required]
            result = tracer.watch(forward, module, proxies)
            tracer.create_node("output", "output", (tracer.create_arg(result),), {})
        except Declined:
            raise
        except torch.fx.proxy.TraceError as error:
            raise Declined(f"its control flow depends on tensors: {_shorten(error)}") from error
        except Exception as error:
            found = f"{type(error).__name__}: {_shorten(error)}"
            raise Declined(f"its forward cannot be recorded: {found}") from error
    inlined = tuple(tracer.inlined)
    return Recording(tracer.graph, required, defaults, tracer.reads, tracer.counts, inlined)


def _read_arguments(forward: Callable) -> tuple[tuple[str, ...], dict[str, Any]]:
    required, defaults = [], {}
    for each in list(inspect.signature(forward).parameters.values())[1:]:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise Declined(f"its forward takes {each}")
        if each.kind != each.POSITIONAL_OR_KEYWORD:
            raise Declined(
                f"{each.name} of its forward is taken by position alone or by name alone"
            )
        if each.default is each.empty:
            required.append(each.name)
        elif not is_constant(each.default):
            kind = type(each.default).__name__
            raise Declined(f"the default of {each.name} is a {kind} that may change unseen")
        else:
            check_telling(each.name, each.default)
            defaults[each.name] = each.default
    if not required:
        raise Declined("its forward takes no tensor")
    return tuple(required), defaults


def _shorten(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""


class _NoTensors(TorchDispatchMode):
    """Stand-ins reach no op. What does is a tensor of the forward's own making, of which a number
    or a branch may come that is another one in the next call."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        raise Declined("it makes a tensor that does not come from its arguments")


class _Tracer(torch.fx.Tracer):
    def __init__(self, root: torch.nn.Module) -> None:
        super().__init__()
        self.root, self.graph = root, Graph()
        self.reads: list[Read] = []
        self.counts: list[tuple[dict, int]] = []
        self.inlined: dict[torch.nn.Module, None] = {}
        self._paths = {module: name for name, module in reversed(list(root.named_modules()))}
        self._attributes: dict[tuple[int, str], Proxy] = {}
        self._classes: dict[type, types.MappingProxyType] = {}
        self._noted: set[tuple[int, str]] = set()
        self._thread, self._is_running = 0, False
        self._checked: set[types.CodeType] = set()
        # Modules within those that were called, whose forwards may write attributes.
        self._called: set[torch.nn.Module] = set()

    def proxy(self, node: torch.fx.Node) -> Proxy:
        return StandIn(node, self)

    def watch(self, forward: Callable, module: torch.nn.Module, proxies: list[Proxy]):
        """forward(module, *proxies), with an eye on the code that runs."""
        if sys.getprofile() is None and sys.gettrace() is None:
            return self._watch(forward, module, proxies)
        # A profiler or a debugger cannot be put aside, as one of C is not to be set again: it sees
        # one thread.
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(self._watch, forward, module, proxies).result()

    def _watch(self, forward: Callable, module: torch.nn.Module, proxies: list[Proxy]):
        is_blind = not sees_instructions()
        self._thread, self._is_running = threading.get_ident(), True
        sys.setprofile(self._profile)
        try:
            with _NoTensors(), Traced(self._trace, is_blind):
                return forward(module, *proxies)
        finally:
            sys.setprofile(None)
            self._is_running = False

    def _profile(self, frame: types.FrameType, event: str, _) -> None:
        if event != "call" or frame.f_code in self._checked:
            return
        check_machinery(frame.f_code)
        if is_of_forward(frame, _Tracer._watch.__code__):
            if not frame.f_code.co_freevars:  # another function may have others
                self._checked.add(frame.f_code)
            check_code(frame.f_code)
            check_names(frame)

    @staticmethod
    def _trace(frame: types.FrameType):
        return trace_instructions(frame) if is_of_forward(frame, _Tracer._watch.__code__) else None

    def create_arg(self, a):
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Tensor):
            raise Declined("it makes a tensor that does not come from its arguments")
        if isinstance(a, torch.nn.Module):
            raise Declined("it hands a module to a function")
        is_plain = type(a) in (tuple, list, dict) or hasattr(a, "_fields")
        if isinstance(a, (tuple, list, dict)) and not is_plain and not isinstance(a, torch.Size):
            raise Declined(f"it makes a {type(a).__name__}")
        if dataclasses.is_dataclass(a) and not is_of_fields(a):
            raise Declined(f"it makes a {type(a).__name__}, which is more than its fields")
        return torch.fx.proxy.TracerBase.create_arg(self, a)

    @contextlib.contextmanager
    def patched(self):
        """Calls and attributes of modules are recorded, in this thread, while forward runs."""
        kind = torch.nn.Module
        ours = {
            "__call__": self._make_call(kind.__call__),
            "__getattr__": self._make_getattr(kind.__getattr__),
            "__getattribute__": self._make_getattribute(kind.__getattribute__),
            "__setattr__": self._make_writer(kind.__setattr__),
            "__delattr__": self._make_writer(kind.__delattr__),
        }
        ours |= {name: self._make_changer(name, getattr(kind, name)) for name in _CHANGERS}
        earlier = {name: kind.__dict__.get(name, _MISSING) for name in ours}
        try:
            for name, function in ours.items():
                setattr(kind, name, function)
            yield
        finally:
            for name, function in earlier.items():
                if function is _MISSING:
                    delattr(kind, name)
                else:
                    setattr(kind, name, function)

    def _is_watching(self) -> bool:
        return self._is_running and threading.get_ident() == self._thread

    def _make_call(self, original):
        def call(module, *args, **kwargs):
            if not self._is_watching():
                return original(module, *args, **kwargs)
            return self._call(module, args, kwargs)

        return call

    def _call(self, module: torch.nn.Module, args, kwargs):
        held = module.__dict__
        is_sequential = type(module) is torch.nn.Sequential and not has_hooks(module)
        if is_sequential and not kwargs and len(args) == 1 and _is_unchanged(module):
            self.counts += [(held[place], 0) for place in HOOKS]
            self.inlined[module] = None
            return torch.nn.Sequential.forward(module, *args)
        if module not in self._paths:
            raise Declined(f"it calls a {type(module).__name__} that is no submodule of it")
        is_torchs = type(module).__module__.startswith("torch.nn.modules.")
        if not is_torchs and any(type(each) in (list, dict) for each in (*args, *kwargs.values())):
            raise Declined(f"it hands a list or a dict to a {type(module).__name__}")
        code = getattr(type(module).__call__, "__code__", None)
        if code is not None and is_of_user(code.co_filename):
            # It has run so far, and would run again in each call of the module.
            raise Declined(f"{type(module).__name__} has a __call__ of its own")
        proxy = self.create_proxy("call_module", self._paths[module], args, kwargs)
        proxy.node.meta["module"] = module
        called = list(module.modules())
        if any(map(may_write, called)):
            self._called.update(called, find_others(called, self._paths))
            # Behind it there may be another tensor of the same name.
            self._attributes.clear()
        return proxy

    def _make_getattr(self, original):
        """Of parameters, buffers and modules, which are no attributes to Python."""

        def read(module, name):
            value = original(module, name)
            if not self._is_watching():
                return value
            for place in ("_parameters", "_buffers", "_modules"):
                held = module.__dict__.get(place, {})
                if name in held:
                    if isinstance(value, Tensor):
                        return self._stand_in(module, name, held)
                    if place != "_modules":
                        self._check_not_called(module, name)
                    self._note(held, name, value)
            return value

        return read

    def _make_getattribute(self, original):
        def read(module, name):
            value = original(module, name)
            if self._is_watching() and is_of_user(sys._getframe(1).f_code.co_filename):
                return self._read(module, name, value)
            return value

        return read

    def _read(self, module: torch.nn.Module, name: str, value):
        held = object.__getattribute__(module, "__dict__")
        if module not in self._paths:
            return value  # made by the forward itself, as a slice of a ModuleList is
        if name == "_modules":
            self.counts.append((value, len(value)))
            for child, each in value.items():
                self._note(value, child, each)
        elif name in ("__dict__", "_parameters", "_buffers"):
            raise Declined(f"it reads {name} of a module")
        elif name.startswith("__"):
            return value
        elif name not in held:
            self._note(held, name, _MISSING)
            self._read_of_class(type(module), name)
        elif isinstance(value, Tensor):
            return self._stand_in(module, name, held)
        elif is_constant(value):
            check_telling(name, value)
            self._check_not_called(module, name)
            self._note(held, name, value)
        else:
            kind = type(value).__name__
            raise Declined(f"it reads {name} of a module, a {kind} that may change unseen")
        return value

    def _read_of_class(self, kind: type, name: str) -> None:
        """A method, a constant, or a property, of which what it reads is noted when it does."""
        for each in kind.__mro__:
            place = self._classes.setdefault(each, each.__dict__)
            if name not in place:
                if is_of_user(_find_file(each)):
                    self._note(place, name, _MISSING)
                continue
            value = place[name]
            if not is_constant(value) and not isinstance(value, DESCRIPTORS):
                kind_of = type(value).__name__
                raise Declined(f"it reads {name} of a class, a {kind_of} that may change unseen")
            check_telling(name, value)
            self._note(place, name, value)
            return

    def _check_not_called(self, module: torch.nn.Module, name: str) -> None:
        if module in self._called:
            raise Declined(f"it reads {name} of a module behind a call, which may write it")

    def _note(self, place: Mapping, name: str, value) -> None:
        if (id(place), name) not in self._noted:
            self._noted.add((id(place), name))
            self.reads.append(Read(place, name, value))

    def _stand_in(self, module: torch.nn.Module, name: str, place: dict) -> Proxy:
        key = id(module), name
        if key not in self._attributes:
            path = self._paths.get(module, "")
            proxy = self.create_proxy("get_attr", f"{path}.{name}".lstrip("."), (), {})
            proxy.node.meta.update(owner=module, name=name, place=place)
            self._attributes[key] = proxy
        return self._attributes[key]

    def _make_writer(self, original):
        def write(module, name, *value):
            if self._is_watching():
                raise Declined(f"it writes {name} of a module")
            return original(module, name, *value)

        return write

    def _make_changer(self, name: str, original):
        @functools.wraps(original)
        def change(module, *args, **kwargs):
            # One that the forward makes is its own, as a slice of a ModuleList is.
            if self._is_watching() and module in self._paths:
                raise Declined(f"it calls {name} of a module")
            return original(module, *args, **kwargs)

        return change


def _find_file(kind: type) -> str:
    module = sys.modules.get(kind.__module__)
    return getattr(module, "__file__", None) or ""


def _is_unchanged(module: torch.nn.Module) -> bool:
    """Whether the instance has the forward of its class, or what this package made of that."""
    from ..forward import FusedForward

    return isinstance(module.__dict__.get("forward"), (FusedForward, type(None)))


def is_read_missing(value) -> bool:
    return value is _MISSING
