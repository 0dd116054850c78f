"""THE table of the words of programs: their types, and what each is in PyTorch.

include/cutlass_fused/program/words.hpp has the same words as C++.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

FLOAT, BOOL, NUMBER = "f", "b", "n"


class Word(NamedTuple):
    """arguments: a letter for each. f: a value, or a number in its place; b: a truth; n: a number,
    which is a constant of the word.
    result: f or b.
    run: the word of tensors; n are floats.
    takes_numbers: whether behind a first tensor it takes floats for f, too.
    """

    arguments: str
    result: str
    run: Callable[..., Tensor]
    takes_numbers: bool = False

    @property
    def signature(self) -> str:
        return f"{self.arguments}>{self.result}"


def _clamp(x: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        low, high = (b if isinstance(b, Tensor) else x.new_full((), b) for b in (low, high))
    return torch.clamp(x, low, high)


_UNARY: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name)
    for name in (
        *("neg", "abs", "sqrt", "rsqrt", "reciprocal"),
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("sigmoid", "erf", "erfc", "floor", "ceil", "round", "trunc", "sign", "relu"),
    )
}
_UNARY |= {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "mish": functional.mish,
    "log_sigmoid": functional.logsigmoid,
}
_BINARY: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name) for name in ("maximum", "minimum", "atan2")
}
_BINARY["prelu"] = torch.ops.aten._prelu_kernel.default
_BINARY_OF_NUMBERS = ("add", "sub", "mul", "div", "pow", "fmod", "remainder")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

WORDS: dict[str, Word] = (
    {name: Word("f", "f", run) for name, run in _UNARY.items()}
    | {name: Word("ff", "f", run) for name, run in _BINARY.items()}
    | {name: Word("ff", "f", getattr(torch, name), True) for name in _BINARY_OF_NUMBERS}
    | {name: Word("ff", "b", getattr(torch, name), True) for name in _COMPARISONS}
    | {
        "leaky_relu": Word("fn", "f", functional.leaky_relu),
        "elu": Word("fnnn", "f", torch.ops.aten.elu.default),  # alpha, scale, scale of the input
        "softplus": Word("fnn", "f", functional.softplus),  # beta, threshold
        "hardtanh": Word("fnn", "f", functional.hardtanh),  # from, to
        "threshold": Word("fnn", "f", functional.threshold),  # threshold, value below
        "clamp": Word("fff", "f", _clamp, True),
        "not": Word("b", "b", torch.logical_not),
        "and": Word("bb", "b", torch.logical_and),
        "or": Word("bb", "b", torch.logical_or),
        "xor": Word("bb", "b", torch.logical_xor),
        "where": Word("bff", "f", torch.where),
        "float": Word("b", "f", lambda truth: truth),  # the dtype is that of acc: see program.run
    }
)


def _merge(merge: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, width: float) -> Tensor:
        groups = x.unflatten(-1, (x.shape[-1] // int(width), int(width)))
        return merge(groups, -1, keepdim=True).expand_as(groups).flatten(-2)

    return run


def _find_first(truth: Tensor, width: float) -> Tensor:
    groups = truth.unflatten(-1, (truth.shape[-1] // int(width), int(width)))
    return (groups & (groups.cumsum(-1) == 1)).flatten(-2)


# Of groups of columns, side by side, of whose width n is: all elements of a group have its result;
# of truths the first or the last that holds is true, and no other.
ROW_WORDS: dict[str, Word] = {
    "row_sum": Word("fn", "f", _merge(torch.sum)),
    "row_max": Word("fn", "f", _merge(torch.amax)),
    "row_min": Word("fn", "f", _merge(torch.amin)),
    "row_first": Word("bn", "b", _find_first),
    "row_last": Word("bn", "b", lambda truth, width: _find_first(truth.flip(-1), width).flip(-1)),
}
ALL_WORDS = WORDS | ROW_WORDS
# Words whose two arguments may change places.
COMMUTATIVE = ("add", "mul", "maximum", "minimum", "eq", "ne", "and", "or", "xor")
