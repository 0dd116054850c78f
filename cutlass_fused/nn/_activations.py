"""What stands behind the product of a LinearActivation: a name and numbers, a torch.nn.PReLU,
another module without tensors, or a function."""

import functools
import numbers
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..programs.common import FUNCTIONS, check_name, common_epilogues
from ._parts import has_hooks, has_plain_forward

if TYPE_CHECKING:
    from ..programs.epilogue import Epilogue

Activation = str | Callable[[Tensor], Tensor]  # a module too

# Modules of which a name and numbers say all, and what they call the numbers.
_NAMES = {
    torch.nn.Identity: ("identity", ()),
    torch.nn.ReLU: ("relu", ()),
    torch.nn.LeakyReLU: ("leaky_relu", ("negative_slope",)),
    torch.nn.SiLU: ("silu", ()),
    torch.nn.Sigmoid: ("sigmoid", ()),
    torch.nn.Tanh: ("tanh", ()),
    torch.nn.Hardtanh: ("hardtanh", ("min_val", "max_val")),
    torch.nn.Hardswish: ("hardswish", ()),
    torch.nn.Mish: ("mish", ()),
    torch.nn.Softplus: ("softplus", ("beta", "threshold")),
    torch.nn.ELU: ("elu", ("alpha",)),
}
_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}
_OF_PRELU = {"num_parameters": int, "init": float}


def take_activation(
    name: str, activation, given: dict, device=None, dtype=None
) -> tuple[Activation, dict[str, float]]:
    """What a module of this name holds of an activation, and the numbers that go with it."""
    if isinstance(activation, str):
        return _take_name(name, activation, given, device, dtype)
    _take_numbers(name, "an activation that is no name", given, {})
    if isinstance(activation, torch.nn.Module):
        return _find_name(activation) or (_check_module(name, activation), {})
    if not callable(activation) or isinstance(activation, type):
        must = "must be a name, a function or a torch.nn.Module"
        is_class = isinstance(activation, type)
        found = f"the class {activation.__name__}" if is_class else type(activation).__name__
        raise TypeError(f"{name}: activation {must}, got {found}")
    return activation, {}


def _take_name(name: str, activation: str, given: dict, device, dtype):
    check_name(f"{name}: activation", activation)
    if activation == "prelu":
        taken = _take_numbers(name, activation, given, _OF_PRELU)
        return torch.nn.PReLU(**taken, device=device, dtype=dtype), {}
    code = FUNCTIONS[activation].__code__
    known = dict.fromkeys(code.co_varnames[2 : code.co_argcount], float)  # behind acc and bias
    taken = _take_numbers(name, activation, given, known)
    if activation == "clamp" and not taken:
        raise ValueError(f"{name}: min or max of clamp must be given, got neither")
    return activation, taken


def _take_numbers(name: str, what: str, given: dict, known: dict[str, Callable]) -> dict:
    for key, value in given.items():
        if key not in known:
            raise TypeError(
                f"{name}: numbers of {what} are {', '.join(known) or 'none'}, got {key}"
            )
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name}: {key} must be a number, got {type(value).__name__}")
        if known[key] is int and not isinstance(value, numbers.Integral):
            raise TypeError(f"{name}: {key} must be an integer, got {value}")
    return {key: known[key](value) for key, value in given.items()}


def _find_name(module: torch.nn.Module) -> tuple[str, dict] | None:
    if has_hooks(module):
        return None
    if has_plain_forward(module, torch.nn.GELU) and module.approximate in _GELUS:
        return _GELUS[module.approximate], {}
    for kind, (name, keys) in _NAMES.items():
        if has_plain_forward(module, kind):
            values = {key: getattr(module, key) for key in keys}
            if all(isinstance(value, numbers.Real) for value in values.values()):
                return name, {key: float(value) for key, value in values.items()}
    return None


def _check_module(name: str, module: torch.nn.Module) -> torch.nn.Module:
    if not has_plain_forward(module, torch.nn.PReLU) and _has_tensors(module):
        found = ", ".join(key for key, _ in (*module.named_parameters(), *module.named_buffers()))
        must = "other than torch.nn.PReLU must have no parameters or buffers"
        raise TypeError(f"{name}: an activation {must}, got {type(module).__name__} with {found}")
    return module


def _has_tensors(module: torch.nn.Module) -> bool:
    return any(True for each in (module.parameters(), module.buffers()) for _ in each)


def make_epilogues(activation: Activation) -> "tuple[Epilogue | None, Epilogue | None]":
    """In eval and in training, which a module may ask for while it is traced; none where it is to
    be called as it is. Imports TorchDynamo."""
    if is_prelu(activation):
        activation = "prelu"
    if isinstance(activation, str):
        check_name("LinearActivation: activation", activation)
        return (common_epilogues()[activation],) * 2
    if not isinstance(activation, torch.nn.Module):
        function = _find_function(activation)
        return (_make_once(function) if isinstance(function, Hashable) else _make(function),) * 2
    if _has_tensors(activation):
        return None, None
    return _make(activation), _make(activation)


def _make(activation: Callable[[Tensor], Tensor]) -> "Epilogue":
    from ..programs.epilogue import Epilogue

    def behind_bias(acc, bias=None):
        is_leaf = isinstance(activation, torch.nn.Module) and not any(activation.children())
        # torch.export counts calls of modules, and loses count where one raises an error, as a
        # function of rows does before it is traced as one. It has no hooks.
        call = activation.forward if is_leaf else activation
        return call(acc if bias is None else acc + bias)

    behind_bias.__name__ = getattr(activation, "__name__", type(activation).__name__)
    return Epilogue(behind_bias)


# Layers of one function share its programs. So many functions are held.
_make_once = functools.lru_cache(maxsize=256)(_make)


def _find_function(activation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of an epilogue, which is called with matrices, the function of elements."""
    from ..programs.epilogue import Epilogue

    return activation.__wrapped__ if isinstance(activation, Epilogue) else activation


def is_prelu(activation: Activation) -> bool:
    return has_plain_forward(activation, torch.nn.PReLU)


def compose(activation: Activation, given: dict[str, float], z: Tensor) -> Tensor:
    """The activation of z, by PyTorch's ops."""
    if isinstance(activation, str):
        return FUNCTIONS[activation](z, **given)
    if not isinstance(activation, torch.nn.Module):
        activation = _find_function(activation)
    return activation(z)
