"""What a call of a module may write to, and what an object holds beside its fields."""

import dataclasses
import functools
import types
import weakref
from collections.abc import Container, Sequence

import torch

from ...nn._parts import has_hooks

_MOST_HELD = 1000  # values that are looked at


def knows_others(called: Sequence[torch.nn.Module], known: Container) -> bool:
    """Whether one of these may write to other modules of a model: a hook may know any."""
    return any(has_hooks(each) or _holds_others(each, known) for each in called)


def _holds_others(module: torch.nn.Module, known: Container) -> bool:
    """Whether it has modules of the model in other places than those of its children. A hook
    may know any."""
    waiting, seen = list(module.__dict__.values()), 0
    while waiting and seen < _MOST_HELD:
        value, seen = waiting.pop(), seen + 1
        if isinstance(value, weakref.ref):
            value = value()
        if isinstance(value, torch.nn.Module) and value in known:
            if value not in set(module.modules()):
                return True
        elif isinstance(value, types.MethodType):
            waiting.append(value.__self__)
        elif isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.FunctionType):
            waiting += [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        elif type(value) in (list, tuple, set, frozenset):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return seen == _MOST_HELD


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not ...
    except ValueError:  # not yet
        return False


def may_write(module: torch.nn.Module) -> bool:
    """Whether a call of it may give modules other attributes: those of PyTorch do not."""
    return not type(module).__module__.startswith("torch.nn.modules.") or has_hooks(module)


def is_of_fields(value) -> bool:
    """Whether a dataclass made of its fields is the same again."""
    kind, fields = type(value), dataclasses.fields(value)
    is_made_here = getattr(kind.__init__, "__code__", None) is not None
    is_made_here = is_made_here and kind.__init__.__code__.co_filename == "<string>"
    is_made_here = is_made_here and not hasattr(kind, "__post_init__")
    held = getattr(value, "__dict__", dict.fromkeys(each.name for each in fields))
    return is_made_here and all(each.init for each in fields) and len(held) == len(fields)
