"""What of a forward's code a recording cannot follow."""

import dis
import functools
import pathlib
import types

import torch

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
    *("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_autocast_dtype"),
    *("is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "is_autocast_cache_enabled"),
    *("set_grad_enabled", "manual_seed", "get_rng_state", "set_rng_state"),
    *("random", "randint", "uniform", "choice", "shuffle", "time", "perf_counter"),
    *("environ", "getenv", "warn", "locals", "globals", "vars", "exec", "eval"),
}
_BLOCKS = {"BEFORE_WITH", "SETUP_WITH", "PUSH_EXC_INFO", "SETUP_FINALLY", "BEFORE_ASYNC_WITH"}
_WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL"}


class Declined(Exception):
    """A module is left as it is. The message says why."""


def check_code(code: types.CodeType) -> None:
    """Raises Declined for code that runs in a forward."""
    reason = _find_reason(code)
    if reason is not None:
        raise Declined(reason)


@functools.lru_cache(maxsize=4096)
def _find_reason(code: types.CodeType) -> str | None:
    name = code.co_filename
    if name.startswith(_TORCH) and name.endswith(_SWITCHES):
        return "it switches gradients, autocast or another mode"
    if not is_of_user(name):
        return None
    names = sorted(_NAMES.intersection(code.co_names))
    if names and not name.startswith(_TORCH):
        return f"{code.co_name} uses {names[0]}, which a recording cannot follow"
    instructions = {each.opname for each in dis.get_instructions(code)}
    if instructions & _BLOCKS and not name.startswith(_TORCH):
        return f"{code.co_name} has a `with` or `try`, which a recording cannot follow"
    if instructions & _WRITES:
        return f"{code.co_name} writes a global variable"
    return None


@functools.lru_cache(maxsize=4096)
def is_of_user(filename: str) -> bool:
    """Whether it is no code of PyTorch's machinery, nor of this package."""
    if filename.startswith(_CONTAINERS):
        return filename != _MACHINERY
    return not filename.startswith((f"{_TORCH}/", f"{_OURS}/"))
