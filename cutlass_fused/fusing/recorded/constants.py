"""What says the same whenever a forward reads it, so that a recording may hold it."""

import enum
import functools
import numbers
import types

import torch

_CONSTANTS: tuple[type, ...] = (
    *(numbers.Number, str, bytes, range, type(None), type(...), enum.Enum, slice),
    *(torch.dtype, torch.device, torch.memory_format, torch.layout),
    *(types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type),
    torch._C.ScriptFunction,
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.library.CustomOpDef),
)
# What a class holds in place of a value.
DESCRIPTORS: tuple[type, ...] = (
    *(classmethod, staticmethod, property, functools.cached_property, types.GenericAlias),
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
)
_TOLD = (torch.Tensor, torch.nn.Module)  # of which others tell
# Of which a method is what its code makes of them, which the recording follows.
_OWNERS = (type, types.ModuleType, torch.nn.Module)


def _has_constant_defaults(function: types.FunctionType) -> bool:
    if (function.__module__ or "").partition(".")[0] == "torch":
        return True
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return all(is_constant(each) or isinstance(each, _TOLD) for each in defaults)


def is_constant(value) -> bool:
    """A function's own code is judged when it runs; not so a list or an iterator that is a default
    of it, which each call may change."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_constant, value))
    if isinstance(value, types.FunctionType):
        return _has_constant_defaults(value)
    if isinstance(value, functools.partial):
        return all(map(is_constant, (value.func, value.args, *value.keywords.values())))
    if isinstance(value, types.MethodType) and not is_constant(value.__func__):
        return False
    if isinstance(value, (types.MethodType, types.BuiltinMethodType)):
        return isinstance(value.__self__, _OWNERS) or is_constant(value.__self__)
    return isinstance(value, _CONSTANTS)
