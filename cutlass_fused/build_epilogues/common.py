"""The epilogues whose kernels come with the library, for the tiles that plans choose most."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from ..programs.common import common_epilogues
from ..programs.epilogue import Epilogue
from ..programs.program import SUM
from ..programs.recorded import COPY
from .calls import PRECISIONS, Call, Operand, record_calls

Sizes = tuple[int, int, int]

_ROW, _SCALAR, _TILE = (Operand(kind, None) for kind in ("N", "scalar", "MN"))
# What serves these serves others too, if slower. Those of every epilogue: a tile of 16-bit numbers;
# of fp32 one of split rows, and the smallest of tf32x3.
_SMALL, _LARGE, _TINY = (1024, 1024, 1024), (8192, 8192, 8192), (256, 256, 256)
_SIZES: dict[str, tuple[Sizes, ...]] = {
    **{"bf16": (_SMALL,), "fp16": (_SMALL,)},
    **{"ieee": (_LARGE, _TINY), "tf32": (_SMALL, _TINY)},
}
# More of those of frequent ones; of fp32 also tiles of tf32x3 for many rows of few columns.
_NARROW = ((4096, 128, 128), (16384, 64, 64))
_MORE_SIZES: dict[str, tuple[Sizes, ...]] = {
    **{"bf16": (_LARGE,), "fp16": (_LARGE,)},
    **{"ieee": (_SMALL, *_NARROW), "tf32": (_LARGE, *_NARROW)},
}


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
    """Of each: the name of its epilogue, what it runs, and the sizes of a product. And of all
    sizes the sums over rows that are the gradient of a bias, and what rounds the gradients of a
    batch norm and its scale."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield "bias", Call(COPY, (), dtype, None, SUM + dtype), (0, 0, 0)
    for dtype, zeros in itertools.product(("float16", "bfloat16"), ("", " 0x0.0p+0")):
        text = f"program 1\noperands 2\nreturn acc p0 p1{zeros}\n"
        out = ",".join([dtype] * (4 if zeros else 3))
        yield "batch norm", Call(text, ("float32:row",) * 2, "float32", None, out), (0, 0, 0)
    for common, precision in itertools.product(_list_epilogues(), PRECISIONS):
        more = _MORE_SIZES[precision] if common.is_frequent else ()
        for sizes in (*_SIZES[precision], *more):
            for call in record_calls(common.epilogue, common.operands, precision, sizes):
                yield common.epilogue.name, call, sizes
