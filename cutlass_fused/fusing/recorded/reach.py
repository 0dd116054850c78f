"""What a call of a module may write to, and what an object holds beside its fields."""

import contextlib
import dataclasses
import functools
import types
import weakref
from collections.abc import Container, Sequence

import torch

_MOST_HELD = 1000  # values that are looked at


def find_others(called: Sequence[torch.nn.Module], known: Container) -> set[torch.nn.Module]:
    """Modules of a model that these may write to: those that they, or their hooks, hold in other
    places than those of children, and what is in these."""
    found: set[torch.nn.Module] = set()
    for module in called:
        own = set(module.modules())
        waiting = [*module.__dict__.values(), *_list_hooks(module)]
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if isinstance(value, weakref.ref):
                value = value()
            if isinstance(value, torch.nn.Module):
                if value in known and value not in own:
                    found.update(value.modules())
            elif id(value) not in seen:
                parts = _list_parts(value)
                if parts is not None:
                    seen.add(id(value))
                    waiting += parts
                if len(seen) > _MOST_HELD:
                    return set(known)
    return found


def _list_parts(value) -> list | None:
    """None: it is no container and no function."""
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.FunctionType):
        names = [each for each in value.__code__.co_names if each in value.__globals__]
        held = [value.__globals__[each] for each in names]
        held = [each for each in held if isinstance(each, (torch.nn.Module, list, dict))]
        held += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return held + _read_cells(value)
    if type(value) in (list, tuple, set, frozenset):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    return None


def _list_hooks(module: torch.nn.Module) -> list:
    """Those that run in a call, and are not PyTorch's own, which write to their module alone."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return [each for each in hooks if not _is_of_torch(each)]


def _is_of_torch(hook) -> bool:
    of = hook if isinstance(hook, types.FunctionType) else type(hook)
    return (getattr(of, "__module__", None) or "").startswith("torch.nn.utils.")


def _read_cells(function: types.FunctionType) -> list:
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty yet
            found.append(cell.cell_contents)
    return found


def may_write(module: torch.nn.Module) -> bool:
    """Whether a call of it may give modules other attributes: those of PyTorch do not."""
    from ..forward import FusedForward

    is_torchs = type(module).__module__.startswith("torch.nn.modules.")
    is_plain = isinstance(module.__dict__.get("forward"), (FusedForward, type(None)))
    return not is_torchs or not is_plain or bool(_list_hooks(module))


def is_of_fields(value) -> bool:
    """Whether a dataclass made of its fields is the same again."""
    kind, fields = type(value), dataclasses.fields(value)
    is_made_here = getattr(kind.__init__, "__code__", None) is not None
    is_made_here = is_made_here and kind.__init__.__code__.co_filename == "<string>"
    is_made_here = is_made_here and not hasattr(kind, "__post_init__")
    held = getattr(value, "__dict__", dict.fromkeys(each.name for each in fields))
    return is_made_here and all(each.init for each in fields) and len(held) == len(fields)
