"""What a captured graph has read of a model: whether it is still so.

A graph reads addresses. What is written to a parameter in place it sees. Another tensor in its
place, another mode, another number in an attribute it does not.
"""

import linecache
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..recorded.texts import Text

_PLAIN = (Tensor, nn.Parameter)
# What every module has: these are asked about by name, or have no influence.
_OF_ALL = frozenset(nn.Module().__dict__)
_HOLDERS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
# Whose content may change in place.
_CONTAINERS = (list, dict, set)


class Unfit(Exception):
    """str: why a model, or a call of it, is not captured."""


class Watched:
    """Of a model as it is now. is_current(): whether a graph that was captured then still computes
    what the model does; one comparison for each attribute and tensor.

    Raises Unfit for a model in training, with hooks within, or with tensors that a graph on
    `device` cannot read by their addresses.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.device, self._text, self._parts = device, Text(), []
        for path, module in model.named_modules():
            self._add_module(path or type(model).__name__, module, module is model)
        self._text.lines.append(f"return not ({' or '.join(self._parts)})")
        self._is_current: Callable[[], bool] = self._text.make("is_current()", "watch")
        # Nobody reads it in a traceback, and a model may be watched anew many times.
        linecache.cache.pop(self._is_current.__code__.co_filename, None)
        # While the tensors live nothing else can have their addresses.
        self.storages = {each.untyped_storage().data_ptr() for each in self.tensors.values()}

    def is_current(self) -> bool:
        try:
            return self._is_current()
        except Exception:  # values that cannot be compared, or a module that lost an attribute
            return False

    def close(self) -> None:
        """Lets go of the tensors at once: the function is among what it reads, a cycle."""
        self._text.globals.clear()
        self.tensors.clear()

    def read_versions(self) -> list[int]:
        """They count writes; those of tensors that count theirs."""
        return [each._version for each in self.tensors.values() if not each.is_inference()]

    def _add_module(self, path: str, module: nn.Module, is_whole: bool) -> None:
        held = module.__dict__
        if module.training:
            raise Unfit(f"{path} is in training")
        # Those of the model itself run in each call, around the graph.
        if not is_whole and any(held[hooks] for hooks in _HOOKS):
            raise Unfit(f"{path} has hooks")
        name = self._name(held)
        self._parts += [f"len({name}) != {len(held)}", f"{name}['training']"]
        self._parts.append(f"{self._name(module)}.__class__ is not {self._name(type(module))}")
        if not is_whole:
            self._parts += [f"{name}[{hooks!r}]" for hooks in _HOOKS]
        for holder in _HOLDERS:
            self._add_entries(path, held[holder], held[holder])
        self._add_entries(path, held, [key for key in held if key not in _OF_ALL])
        prepared = held.get("_prepared_split")
        if prepared is not None:
            self._add_prepared(prepared, held["_parameters"]["weight"])

    def _add_entries(self, path: str, held: dict, keys) -> None:
        name = self._name(held)
        if held and not isinstance(keys, list):
            self._parts.append(f"len({name}) != {len(held)}")
        for key in keys:
            value = held[key]
            found = f"{name}[{key!r}]"
            self._parts.append(f"{found} is not {self._name(value)}")
            if isinstance(value, Tensor):
                self._add_tensor(f"{path}.{key}", value)
            elif type(value) in _CONTAINERS:
                self._parts.append(f"{found} != {self._name(value.copy())}")

    def _add_tensor(self, path: str, tensor: Tensor) -> None:
        if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_nested:
            raise Unfit(f"{path} is no plain tensor")
        if tensor.device != self.device:
            raise Unfit(f"{path} is on {tensor.device}, not on {self.device}")
        if id(tensor) in self.tensors:
            return
        # `.data` may give it other memory, shapes or types.
        alias = self.tensors[id(tensor)] = tensor.detach()
        own = self._name(tensor)
        self._parts.append(f"not {own}.is_set_to({self._name(alias)})")
        self._parts.append(f"{own}.dtype is not {self._name(tensor.dtype)}")

    def _add_prepared(self, prepared, weight: Tensor) -> None:
        """The graph reads the split that cutlass_fused.prepare made, not the weight."""
        if prepared.is_of(weight):
            own, state = self._name(prepared), self._name(prepared.state)
            self._parts.append(f"{own}.state is not {state}")
            self._parts.append(f"{self._name(weight)}._version != {weight._version}")

    def _name(self, value) -> str:
        """In the text, by identity: a number that was assigned anew counts as another."""
        name = f"k{len(self._text.globals)}"
        self._text.globals[name] = value
        return name
