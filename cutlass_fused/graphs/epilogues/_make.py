"""Nodes of a graph, made with what they give."""

import operator

import torch
from torch import fx

from ...programs.program import Operand
from ._cut import Cut
from .forms.fold import Shift, Source

_aten = torch.ops.aten
_FUNCTIONALIZED = torch.ops.higher_order.auto_functionalized
_ORIGINS = ("stack_trace", "nn_module_stack", "original_aten", "seq_nr", "from_node")


class Maker:
    """Makes nodes of a graph, with what they give."""

    def __init__(self, graph: fx.Graph, product: fx.Node, origin: fx.Node) -> None:
        self._graph, self._origin = graph, origin
        self._fake_mode = product.meta["val"].fake_mode
        self.made: dict[fx.Node, fx.Node] = {}  # for nodes of the graph

    def call(self, op, *arguments) -> fx.Node:
        node = self._graph.call_function(op, arguments)
        # What Inductor says of a kernel: which lines of the user's it comes from.
        node.meta |= {key: v for key, v in self._origin.meta.items() if key in _ORIGINS}
        values = fx.node.map_arg(arguments, lambda each: each.meta["val"])
        with self._fake_mode, torch.no_grad():
            node.meta["val"] = op(*values)
        return node

    def call_functionalized(self, op: torch._ops.OpOverload, arguments: list) -> fx.Node:
        """An op that writes to some of its arguments, as one that gives them new."""
        schema = op._schema.arguments
        named = dict(zip((each.name for each in schema), arguments, strict=False))
        named = {each.name: named.get(each.name, each.default_value) for each in schema}
        node = self._graph.call_function(_FUNCTIONALIZED, (op,), named)
        node.meta |= {key: v for key, v in self._origin.meta.items() if key in _ORIGINS}
        values = fx.node.map_arg(named, lambda each: each.meta["val"])
        with self._fake_mode, torch.no_grad():
            node.meta["val"] = _FUNCTIONALIZED(op, **values)
        return node

    def pick(self, results: fx.Node, index: int) -> fx.Node:
        node = self._graph.call_function(operator.getitem, (results, index))
        node.meta["val"] = results.meta["val"][index]
        return node

    def transpose(self, b: fx.Node) -> fx.Node:
        """b (K, N) as (N, K); it is often a transposed weight itself."""
        if b.target is _aten.permute.default and list(b.args[1]) in ([1, 0], [-1, -2]):
            return b.args[0]
        if b.target is _aten.t.default:
            return b.args[0]
        return self.call(_aten.permute.default, b, [1, 0])

    def take(self, source: Source, n: int) -> fx.Node:
        """An operand of a program."""
        return self._shift(source) if isinstance(source, Shift) else self.flatten(source, n)

    def take_vector(self, argument, cut: Cut, n: int):
        """An argument of an op with a name: (N,) or (1,), a number or None."""
        if not isinstance(argument, Operand):
            return argument
        node = cut.operands[argument.index]
        return node if node.meta["val"].dim() == 1 else self.call(_aten.reshape.default, node, [-1])

    def flatten_row(self, node: fx.Node) -> fx.Node:
        is_row = node.meta["val"].dim() == 1
        return node if is_row else self.call(_aten.reshape.default, node, [-1])

    def _shift(self, shift: Shift) -> fx.Node:
        first, second = self._row(shift.first), self._row(shift.second)
        if shift.scale is not None:
            scale = shift.scale
            scale = self._row(scale) if isinstance(scale, fx.Node) else scale
            first = self.call(_aten.mul.Tensor, first, scale)
        if shift.sign < 0:
            first = self.call(_aten.neg.default, first)
        op = _aten.add.Tensor if shift.other_sign > 0 else _aten.sub.Tensor
        return self.call(op, first, second)

    def _row(self, source: Source) -> fx.Node:
        """In fp32, and of one dimension."""
        if isinstance(source, Shift):
            return self._shift(source)
        if source.meta["val"].dtype != torch.float32:
            source = self.call(torch.ops.prims.convert_element_type.default, source, torch.float32)
        is_row = source.meta["val"].dim() == 1
        return source if is_row else self.call(_aten.reshape.default, source, [-1])

    def flatten(self, operand: fx.Node, n: int) -> fx.Node:
        """Of two dimensions at most, beside (M, N)."""
        shape = operand.meta["val"].shape
        if len(shape) <= 2:
            return operand
        last = shape[-1] if isinstance(shape[-1], int) else n
        return self.call(_aten.reshape.default, operand, [-1, last])
