"""The products of a graph that a program may stand behind."""

from typing import NamedTuple

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from .._arguments import name_arguments
from ._ops import FLOATS

_aten = torch.ops.aten


class Product(NamedTuple):
    """alpha * (a (M, K) @ b (K, N)) + beta * c. n is known."""

    node: fx.Node
    a: fx.Node
    b: fx.Node
    n: int
    c: fx.Node | None = None
    beta: float = 1.0
    alpha: float = 1.0

    @property
    def value(self) -> Tensor:
        return self.node.meta["val"]


def find_product(node: fx.Node, devices: set[str]) -> Product | None:
    if node.op != "call_function" or not isinstance(node.meta.get("val"), FakeTensor):
        return None
    if node.target is _aten.mm.default:
        given = name_arguments(node)
        found = given["self"], given["mat2"]
        if "out_dtype" in given:
            return None
        options = {}
    elif node.target is _aten.addmm.default:
        given = name_arguments(node)
        found = given["mat1"], given["mat2"]
        numbers = {name: given.get(name, 1) for name in ("beta", "alpha")}
        if not all(isinstance(each, (int, float)) for each in numbers.values()):
            return None
        options = {name: float(each) for name, each in numbers.items()}
        if options["alpha"] == 0.0:
            return None
        if options["beta"] != 0.0:
            options["c"] = given["self"]
    else:
        return None
    value, n = node.meta["val"], node.meta["val"].shape[1]
    values = [each.meta.get("val") for each in found]
    if not all(isinstance(each, FakeTensor) for each in values):
        return None
    is_alike = all(each.dtype == value.dtype and each.device == value.device for each in values)
    if not is_alike or value.dtype not in FLOATS or value.device.type not in devices:
        return None
    if type(n) is not int or n == 0 or any(size == 0 for size in map(_known, values[0].shape)):
        return None
    return Product(node, *found, n, **options)


def _known(size) -> int | None:
    return size if type(size) is int else None
