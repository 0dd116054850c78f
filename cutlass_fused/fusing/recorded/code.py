"""What of a forward's code a recording cannot follow."""

import dis
import functools
import operator
import pathlib
import sysconfig
import types

import torch

from .constants import is_constant

_TORCH = str(pathlib.Path(torch.__file__).parent)
_OURS = str(pathlib.Path(__file__).parent.parent.parent)
# Modules of PyTorch whose code is that of a forward, or reads attributes for one.
_CONTAINERS = f"{_TORCH}/nn/modules/"
_MACHINERY = f"{_TORCH}/nn/modules/module.py"
# Code that switches a mode for what runs within.
_SWITCHES = ("/utils/_contextlib.py", "/autograd/grad_mode.py", "/amp/autocast_mode.py")

# What can tell a stand-in from a tensor, or says another thing in the next call. A name that is
# used for something else is declined too: to leave a model as it is costs no correctness.
_NAMES = {
    *("isinstance", "issubclass", "hasattr", "callable", "type", "id", "print", "open", "input"),
    "is_tensor",
    *("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_autocast_dtype"),
    *("is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "is_autocast_cache_enabled"),
    *("set_grad_enabled", "manual_seed", "get_rng_state", "set_rng_state"),
    *("random", "randint", "uniform", "choice", "shuffle", "time", "perf_counter"),
    *("environ", "getenv", "warn", "locals", "globals", "vars", "exec", "eval"),
    *("getrandbits", "normal", "standard_normal", "integers", "permutation", "monotonic", "now"),
    *("__class__", "__dict__", "__doc__", "__setattr__", "__delattr__"),
    *("setattr", "delattr", "dir"),
    *("seed", "initial_seed", "is_anomaly_enabled"),
    # Settings of PyTorch, and what sets them.
    *(name for name in dir(torch) if name.startswith(("get_", "set_", "use_", "are_"))),
} - {"get_device"}
# Those that attributes of a model may have, too: what has them is judged as it runs.
_OF_ANYTHING = {
    *("callable", "type", "id", "print", "open", "input", "dir", "seed", "vars", "locals"),
    *("globals", "exec", "eval", "random", "randint", "uniform", "choice", "shuffle", "time"),
    *("perf_counter", "getrandbits", "normal", "standard_normal", "integers", "permutation"),
    *("monotonic", "now"),
}
# By any name.
_TELLING = (
    *(isinstance, issubclass, hasattr, callable, type, id, print, open, input, dir, vars),
    *(setattr, delattr, operator.is_, operator.is_not, torch.is_tensor, torch.is_grad_enabled),
)
_BLOCKS = {"BEFORE_WITH", "SETUP_WITH", "PUSH_EXC_INFO", "SETUP_FINALLY", "BEFORE_ASYNC_WITH"}
_WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL"}
_MATCHES = {"MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS"}
# Whose functions give another number in each call, or are seen outside, whatever their names are.
_OUTSIDE = {"random", "secrets", "time", "datetime", "uuid", "os", "posix", "sys", "subprocess"}
# What a recording would go through, and lose: gradients of its own, and a part that is computed
# again in the backward pass. PyTorch's functions may call these.
_APPLY = torch.autograd.Function.apply.__func__.__code__
_CHECKPOINT = "/utils/checkpoint.py"
_INIT = f"{_TORCH}/nn/init.py"
_PYTHON = sysconfig.get_path("stdlib")
# Methods that read the tensors and children of a module where no stand-ins are.
_LISTINGS = frozenset(
    getattr(torch.nn.Module, name).__code__
    for name in (
        *("parameters", "named_parameters", "buffers", "named_buffers", "state_dict"),
        *("children", "named_children", "modules", "named_modules"),
    )
)
_FOR_OTHERS = (torch.Tensor, torch.nn.Module)


class Declined(Exception):
    """A module is left as it is. The message says why."""


def check_code(code: types.CodeType) -> None:
    """Raises Declined for code that runs in a forward."""
    reason = _find_reason(code)
    if reason is not None:
        raise Declined(reason)


def check_machinery(code: types.CodeType) -> None:
    """Raises Declined for code that a forward may reach through PyTorch's functions."""
    if code is _APPLY:
        raise Declined("it calls a torch.autograd.Function")
    if code.co_filename.endswith(_CHECKPOINT) and is_of_torch(code.co_filename):
        raise Declined("it calls torch.utils.checkpoint")
    if code.co_filename == _INIT:
        raise Declined(f"it calls torch.nn.init.{code.co_name}")


def is_of_forward(frame: types.FrameType, watch: types.CodeType) -> bool:
    """Whether the code `watch` calls it, as the forward or within that. Of Python's library what
    PyTorch or this package calls for itself, to record or to log, is not of the forward. A property
    of the model is, though this package reads it.
    """
    name = frame.f_code.co_filename
    is_own = is_of_user(name) and not is_of_python(name)
    if is_own and "<" not in name:
        return True
    around = frame.f_back
    while around is not None and around.f_code is not watch:
        name = around.f_code.co_filename
        if not (is_of_user(name) or (is_own and is_of_ours(name))):
            return False
        around = around.f_back
    return True


def check_names(frame: types.FrameType) -> None:
    """Raises Declined where the code of a forward reads a list, an iterator or an object, say, that
    is neither its own nor a module's."""
    code = frame.f_code
    if is_of_torch(code.co_filename) or not is_of_user(code.co_filename):
        return
    for name in _list_globals(code):
        _check_value(name, frame.f_globals.get(name))
    for name in code.co_freevars:
        if not _is_of_caller(frame.f_back, name, frame.f_locals.get(name)):
            if name in _list_written(code):
                raise Declined(f"{code.co_name} writes {name}, a variable of a function around it")
            _check_value(name, frame.f_locals.get(name))


def _check_value(name: str, value) -> None:
    # Of a tensor or a module others tell.
    if not is_constant(value) and not isinstance(value, (types.ModuleType, *_FOR_OTHERS)):
        kind = type(value).__name__
        raise Declined(f"it reads {name}, a {kind} that may change unseen")
    check_telling(name, value)


def check_telling(name: str, value) -> None:
    """Raises Declined for a function that tells a stand-in from a tensor, or reaches outside."""
    is_it = any(value is each for each in _TELLING)
    if is_it or (not isinstance(value, types.ModuleType) and is_outside(value)):
        raise Declined(f"it uses {name}, which a recording cannot follow")


def is_outside(value) -> bool:
    """Whether it is a module, or a function or class of one, that draws numbers, tells time, or
    reaches the system."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        owner = getattr(value, "__self__", None)
        is_bound = isinstance(value, (types.MethodType, types.BuiltinMethodType))
        of = type(owner) if is_bound and not isinstance(owner, (types.ModuleType, type)) else value
        name = getattr(of, "__module__", None)
        if not isinstance(name, str) or is_constant(value) and not callable(value):
            return False
    return _is_outside_module(name)


def _is_outside_module(name: str) -> bool:
    return name.partition(".")[0] in _OUTSIDE or name.startswith("numpy.random")


def is_of_torch(filename: str) -> bool:
    return filename.startswith(f"{_TORCH}/")


def is_of_python(filename: str) -> bool:
    """Of its library, of code that it has written, as for dataclasses, or of other packages."""
    is_installed = "site-packages" in filename or "dist-packages" in filename
    return is_installed or filename.startswith((_PYTHON, "<frozen", "<string>"))


def is_of_ours(filename: str) -> bool:
    return filename.startswith(f"{_OURS}/")


def _is_of_caller(frame: types.FrameType | None, name: str, value) -> bool:
    """Whether a function around, which runs, has a variable of that name for those within it."""
    while frame is not None and is_of_user(frame.f_code.co_filename):
        is_there = name in frame.f_code.co_cellvars
        if is_there and frame.f_locals.get(name) is value:
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=4096)
def _list_globals(code: types.CodeType) -> tuple[str, ...]:
    found = (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=4096)
def _list_written(code: types.CodeType) -> frozenset[str]:
    writes = ("STORE_DEREF", "DELETE_DEREF")
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname in writes)


def _list_names(code: types.CodeType) -> set[str]:
    attributes = {
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD")
    }
    return set(code.co_names) - (attributes & _OF_ANYTHING - set(_list_globals(code)))


@functools.lru_cache(maxsize=4096)
def _find_reason(code: types.CodeType) -> str | None:
    name = code.co_filename
    if is_of_torch(name) and name.endswith(_SWITCHES):
        return "it switches gradients, autocast or another mode"
    if code in _LISTINGS:
        return f"it reads {code.co_name}() of a module"
    if not is_of_user(name):
        return None
    names = sorted(_NAMES.intersection(_list_names(code)))
    if code.co_name == "__init__" and name == "<string>":  # of a frozen dataclass
        names = [each for each in names if each != "__setattr__"]
    if names and not is_of_torch(name):
        return f"{code.co_name} uses {names[0]}, which a recording cannot follow"
    instructions = {each.opname for each in dis.get_instructions(code)}
    if instructions & _BLOCKS and not is_of_torch(name):
        return f"{code.co_name} has a `with` or `try`, which a recording cannot follow"
    imported = {i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}
    if any(_is_outside_module(each) for each in imported) and not is_of_torch(name):
        return f"{code.co_name} imports what a recording cannot follow"
    if instructions & _MATCHES:
        return f"{code.co_name} has a `match`, which a recording cannot follow"
    if instructions & _WRITES:
        return f"{code.co_name} writes a global variable"
    return None


@functools.lru_cache(maxsize=4096)
def is_of_user(filename: str) -> bool:
    """Whether it is no code of PyTorch's machinery, nor of this package."""
    if filename.startswith(_CONTAINERS):
        return filename != _MACHINERY
    return not filename.startswith((f"{_TORCH}/", f"{_OURS}/"))
