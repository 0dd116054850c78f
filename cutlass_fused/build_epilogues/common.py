"""The epilogues whose kernels come with the library, for the tiles that plans choose most."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from ..programs.common import common_epilogues
from ..programs.epilogue import Epilogue
from .calls import PRECISIONS, Call, Operand, record_calls

Sizes = tuple[int, int, int]

_ROW, _SCALAR, _TILE = (Operand(kind, None) for kind in ("N", "scalar", "MN"))
# What serves these serves others too, if slower. The first are those of every epilogue: two tiles
# of 16-bit numbers, and of fp32 one.
_SMALL, _LARGE = (1024, 1024, 1024), (8192, 8192, 8192)
_SIZES = {"bf16": (_SMALL, _LARGE), "fp16": (_SMALL, _LARGE)}
_SIZES |= {"tf32": (_SMALL, _LARGE), "ieee": (_LARGE, _SMALL)}


class Common(NamedTuple):
    """An epilogue, its operands, and whether it is so frequent that it gets more tiles."""

    epilogue: Epilogue
    operands: dict[str, Operand | float]
    is_frequent: bool = False


def _residual(acc, bias, residual):
    return acc + bias + residual


def _list_epilogues() -> Iterator[Common]:
    named = common_epilogues()
    for name in ("identity", "relu", "gelu", "gelu_tanh", "silu"):
        yield Common(named[name], {"bias": _ROW}, is_frequent=True)
    for name in ("relu", "gelu", "gelu_tanh", "silu"):
        yield Common(named[name], {})
    for name in ("leaky_relu", "sigmoid", "tanh", "hardtanh", "hardswish", "mish", "softplus"):
        yield Common(named[name], {"bias": _ROW})
    yield Common(named["elu"], {"bias": _ROW})
    yield Common(named["prelu"], {"bias": _ROW, "slope": _SCALAR})
    yield Common(named["clamp"], {"bias": _ROW, "min": 0.0, "max": 6.0})  # ReLU6
    yield Common(Epilogue(_residual), {"bias": _ROW, "residual": _TILE})


def choose_gpus(archs: list[str]) -> list[int]:
    """Compute capabilities to link for: Hopper where the library has kernels of its own for it,
    else what it was compiled for."""
    return [90] if "9.0a" in archs else [int(arch.rstrip("a").replace(".", "")) for arch in archs]


def list_common() -> Iterator[tuple[str, Call, Sizes]]:
    """Of each: the name of its epilogue, what it runs, and the sizes of a product."""
    for common, precision in itertools.product(_list_epilogues(), PRECISIONS):
        for sizes in _SIZES[precision][: 1 + common.is_frequent]:
            for call in record_calls(common.epilogue, common.operands, precision, sizes):
                yield common.epilogue.name, call, sizes
