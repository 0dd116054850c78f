"""Tensors beside a product, as operands of its program; and what is computed of them alone, which
the program does too, where nothing else has it in memory."""

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...programs.operands import COLUMN, ROW, SCALAR, TILE
from ...programs.program import Operand
from ...programs.tracing.builder import Builder, Known
from ._ops import CONVERSIONS, EXPAND, FLOATS, POINTWISE, find_constant, is_stored
from ._product import Product

# Nodes that are looked through from one operand on.
_DEEP = 40


class Operands:
    """`nodes` and their `kinds`, in the order in which they were taken."""

    def __init__(self, builder: Builder, product: Product) -> None:
        self._builder, self._product = builder, product
        self._places: dict[fx.Node, int] = {}
        self.kinds: list[str] = []

    @property
    def nodes(self) -> list[fx.Node]:
        return list(self._places)

    def take(self, node: fx.Node, shape, is_scalar: bool = False) -> Known:
        """What stands for it in the program, where it broadcasts to a shape (..., N). Raises
        ValueError if nothing does."""
        return self._take(node, tuple(shape), is_scalar, [_DEEP])

    def _take(self, node: fx.Node, shape: tuple, is_scalar: bool, left: list[int]) -> Known:
        left[0] -= 1
        constant = find_constant(node)
        if constant is not None:
            return constant
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or value.device != self._product.value.device:
            raise ValueError(node)
        if left[0] > 0:
            if node.target in CONVERSIONS and value.dtype in (*FLOATS, torch.bool):
                return self._convert(node, shape, is_scalar, left)
            if node.target is EXPAND:
                return self._take(node.args[0], shape, is_scalar, left)
            if node.op == "call_function" and node.target in POINTWISE:
                if self._is_computed_here(node, shape):
                    return self._compute(node, shape, is_scalar, left)
        return self._take_itself(node, shape, is_scalar)

    def _is_computed_here(self, node: fx.Node, shape: tuple) -> bool:
        value = node.meta["val"]
        if value.dtype == torch.bool:  # which is no operand
            return True
        if value.dtype not in FLOATS:
            return False
        if find_kind(value, shape) in (TILE, COLUMN):
            return not is_stored(node)
        # Of one tensor at most: a kernel less, and no operand more.
        return len(_find_leaves(node)) <= 1

    def _convert(self, node: fx.Node, shape: tuple, is_scalar: bool, left: list[int]) -> Known:
        inner = node.args[0].meta.get("val")
        if not isinstance(inner, Tensor) or inner.dtype not in (*FLOATS, torch.bool):
            raise ValueError(node)
        taken = self._take(node.args[0], shape, is_scalar, left)
        is_truth = self._builder.is_truth(taken)
        if node.meta["val"].dtype == torch.bool:
            return taken if is_truth else self._builder.add("ne", taken, 0.0)
        return self._builder.add("float", taken) if is_truth else taken

    def _compute(self, node: fx.Node, shape: tuple, is_scalar: bool, left: list[int]) -> Known:
        def take(given):
            if isinstance(given, fx.Node):
                return self._take(given, shape, is_scalar, left)
            if isinstance(given, bool) or not isinstance(given, (int, float)):
                return given
            return float(given)

        given = [take(each) for each in node.args]
        named = {name: take(each) for name, each in node.kwargs.items()}
        try:
            value = POINTWISE[node.target](self._builder, *given, **named)
        except (TypeError, AttributeError):  # an option that the rule does not know
            raise ValueError(node) from None
        is_truth = value is not None and self._builder.is_truth(value)
        if value is None or is_truth != (node.meta["val"].dtype == torch.bool):
            raise ValueError(node)
        return value

    def _take_itself(self, node: fx.Node, shape: tuple, is_scalar: bool) -> Operand:
        if node in self._places:
            return Operand(self._places[node])
        value = node.meta["val"]
        kind = find_kind(value, shape)
        if kind is None or value.dtype not in FLOATS or (is_scalar and kind != SCALAR):
            raise ValueError(node)
        self._places[node] = len(self._places)
        self.kinds.append(kind)
        return Operand(self._places[node])


def find_kind(value: Tensor, shape: tuple) -> str | None:
    """Of what broadcasts to a shape (..., N)."""
    sizes = tuple(value.shape)
    if len(sizes) > len(shape):
        return None
    if all(_is(size, 1) for size in sizes):
        return SCALAR
    if _is(sizes[-1], shape[-1]) and all(_is(size, 1) for size in sizes[:-1]):
        return ROW
    if len(sizes) == len(shape) and all(map(_is, sizes[:-1], shape[:-1])):
        if _is(sizes[-1], 1):
            return COLUMN
        if _is(sizes[-1], shape[-1]):
            return TILE
    return None


def _find_leaves(node: fx.Node, deep: int = 8) -> set[fx.Node]:
    """What it is computed of, element by element."""
    is_constant = find_constant(node) is not None
    if is_constant:
        return set()
    looks = node.target in POINTWISE or node.target in CONVERSIONS
    if node.op != "call_function" or not looks or deep == 0:
        return {node}
    return {leaf for each in node.all_input_nodes for leaf in _find_leaves(each, deep - 1)}


def _is(a, b) -> bool:
    return statically_known_true(a == b)
