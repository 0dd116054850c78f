"""A chain's cut as a call of our op in its graph."""

import operator

import torch
from torch import fx

from ...programs.program import Operand
from ._chain import COLUMN, FULL, Chain
from ._cut import Cut
from .forms.fold import Shift, Source

_aten = torch.ops.aten
_EPILOGUE = torch.ops.cutlass_fused.linear_epilogue.default
_ORIGINS = ("stack_trace", "nn_module_stack", "original_aten", "seq_nr", "from_node")


def replace(chain: Chain, cut: Cut, precision: str) -> None:
    """Its place is behind all that it reads; what reads it may stand in front: see sort."""
    product, graph = chain.product, chain.product.node.graph
    maker = _Maker(graph, product.node, cut.outputs[-1][-1])
    reads = {product.node, *(leaf for each in cut.operands for leaf in _list_leaves(each))}
    last = next(node for node in reversed(graph.nodes) if node in reads)
    with graph.inserting_before(last.next):
        weight = maker.transpose(product.b)
        if cut.named is None:
            operands = [maker.take(each, product.n) for each in cut.operands]
            out = _name_dtypes(cut, product.value.dtype)
            given = (product.a, weight, operands, cut.program.text, precision, out)
            results = maker.call(_EPILOGUE, *given)
        else:
            op, given = cut.named
            given = [maker.take_vector(each, cut, product.n) for each in given]
            results = maker.call(op, product.a, weight, *given, precision)
        for index, nodes in enumerate(cut.outputs):
            result = results if cut.named is not None else maker.pick(results, index)
            for node in nodes:
                y = _shape(maker, result, node, chain.members[node])
                for key, value in node.meta.items():
                    y.meta.setdefault(key, value)
                node.replace_all_uses_with(y)
                maker.made[node] = y
        _replace_truths(chain, cut, maker)
    for node in reversed(chain.members):
        if not node.users:
            graph.erase_node(node)


def _replace_truths(chain: Chain, cut: Cut, maker: "_Maker") -> None:
    """Those that are told by a result, where something behind the members reads them."""
    for truth, node in chain.same_signs.items():
        if any(user not in cut.members for user in truth.users) and node in maker.made:
            y = maker.call(_aten.gt.Scalar, maker.made[node], 0)
            truth.replace_all_uses_with(y, lambda user: user not in cut.members)


def _shape(maker: "_Maker", result: fx.Node, node: fx.Node, member) -> fx.Node:
    """As the node was: its leading dimensions, and the last one or none."""
    rank = node.meta["val"].dim()
    if member.kind == FULL:
        last: tuple = (node.meta["val"].shape[-1],)
    else:
        last = (1,) if member.kind == COLUMN else ()
    if rank == 2 and last:
        return result
    return maker.call(_aten.reshape.default, result, [*member.leading, *last])


def _list_leaves(source: Source) -> list[fx.Node]:
    if isinstance(source, fx.Node):
        return [source]
    parts = (each for each in source if isinstance(each, (fx.Node, Shift)))
    return [leaf for part in parts for leaf in _list_leaves(part)]


def _name_dtypes(cut: Cut, dtype: torch.dtype) -> str | None:
    dtypes = [nodes[0].meta["val"].dtype for nodes in cut.outputs]
    if set(dtypes) == {dtype}:
        return None
    return ",".join(str(each).removeprefix("torch.") for each in dtypes)


class _Maker:
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
