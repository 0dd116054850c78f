"""The epilogues that people write most, by name: a bias, then an activation.

Plain functions: what makes them epilogues imports TorchDynamo, and waits until one is asked for.
Numbers have PyTorch's names and defaults. A number is part of a program, so that each of these has
one for each value of its numbers, with a bias and without.
"""

import functools
import itertools
import threading
import types
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from .epilogue import Epilogue


def identity(acc, bias=None):
    return _add(acc, bias)


def relu(acc, bias=None):
    return functional.relu(_add(acc, bias))


def leaky_relu(acc, bias=None, negative_slope=0.01):
    return functional.leaky_relu(_add(acc, bias), negative_slope)


def prelu(acc, slope, bias=None):
    """slope: one value, or one for each column, as the weight of torch.nn.PReLU."""
    return torch.prelu(_add(acc, bias), slope)


def gelu(acc, bias=None):
    return functional.gelu(_add(acc, bias))


def gelu_tanh(acc, bias=None):
    return functional.gelu(_add(acc, bias), approximate="tanh")


def silu(acc, bias=None):
    return functional.silu(_add(acc, bias))


def sigmoid(acc, bias=None):
    return torch.sigmoid(_add(acc, bias))


def tanh(acc, bias=None):
    return torch.tanh(_add(acc, bias))


def clamp(acc, bias=None, min=None, max=None):
    """At least one of the numbers must be given."""
    return torch.clamp(_add(acc, bias), min, max)


def hardtanh(acc, bias=None, min_val=-1.0, max_val=1.0):
    return functional.hardtanh(_add(acc, bias), min_val, max_val)


def hardswish(acc, bias=None):
    return functional.hardswish(_add(acc, bias))


def mish(acc, bias=None):
    return functional.mish(_add(acc, bias))


def softplus(acc, bias=None, beta=1.0, threshold=20.0):
    return functional.softplus(_add(acc, bias), beta, threshold)


def elu(acc, bias=None, alpha=1.0):
    return functional.elu(_add(acc, bias), alpha)


def _add(acc: Tensor, bias: Tensor | None) -> Tensor:
    return acc if bias is None else acc + bias


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        *(identity, relu, leaky_relu, prelu, gelu, gelu_tanh, silu, sigmoid, tanh, clamp),
        *(hardtanh, hardswish, mish, softplus, elu),
    )
}


@functools.cache
def common_epilogues() -> "dict[str, Epilogue]":
    """Each by its name. All take `bias` or none; `prelu` also its `slope`. By their names others
    take numbers, of which `clamp` has no defaults."""
    from .epilogue import Epilogue

    return {name: Epilogue(function) for name, function in FUNCTIONS.items()}


# What linear_epilogue calls, as attributes of names that TorchDynamo takes for constants: of a
# dictionary it would not see what is made while it traces.
MADE = types.SimpleNamespace()
_NAMES: dict[Callable[..., Tensor], str] = {}  # of functions, the oldest first
_MOST_FUNCTIONS = 256
_LOCK = threading.Lock()
_COUNT = itertools.count()


def make_epilogue(given: "str | Callable[..., Tensor]") -> str:
    """The name of one of the common epilogues, or of what is made of a function, in MADE.

    Raises TypeError or ValueError where there is none.
    """
    if isinstance(given, str):
        check_name("linear_epilogue: epilogue", given)
        setattr(MADE, given, common_epilogues()[given])
        return given
    if not callable(given):
        must = "must be an epilogue, a function or the name of one"
        raise TypeError(f"linear_epilogue: epilogue {must}, got {type(given).__name__}")
    if not isinstance(given, Hashable):
        must = "must be hashable, or made by cutlass_fused.epilogue"
        raise TypeError(f"linear_epilogue: epilogue {must}, got {type(given).__name__}")
    from .epilogue import Epilogue

    with _LOCK:
        if given not in _NAMES:
            name = f"function_{next(_COUNT)}"
            setattr(MADE, name, Epilogue(given))
            _NAMES[given] = name
            if len(_NAMES) > _MOST_FUNCTIONS:
                delattr(MADE, _NAMES.pop(next(iter(_NAMES))))
        return _NAMES[given]


# TorchDynamo is to call it and not to trace it: precision.py says why not by its own function.
make_epilogue._dynamo_marked_constant = True


def check_name(what: str, name: str) -> None:
    """That it is one of the common epilogues."""
    if name not in FUNCTIONS:
        raise ValueError(f"{what} must be one of {', '.join(FUNCTIONS)}, got {name!r}")
