"""A chain's cut as a call of our op in its graph."""

import operator

import torch
from torch import fx

from ._chain import COLUMN, FULL, Chain
from ._cut import Cut

_aten = torch.ops.aten
_EPILOGUE = torch.ops.cutlass_fused.linear_epilogue.default
_ORIGINS = ("stack_trace", "nn_module_stack", "original_aten", "seq_nr", "from_node")


def replace(chain: Chain, cut: Cut, precision: str) -> None:
    """Its place is behind all that it reads; what reads it may stand in front: see sort."""
    product, graph = chain.product, chain.product.node.graph
    maker = _Maker(graph, product.node, cut.outputs[-1][-1])
    reads = {product.node, *cut.operands}
    last = next(node for node in reversed(graph.nodes) if node in reads)
    with graph.inserting_before(last.next):
        weight = maker.transpose(product.b)
        operands = [maker.flatten(node, product.n) for node in cut.operands]
        out = _name_dtypes(cut, product.value.dtype)
        given = (product.a, weight, operands, cut.program.text, precision, out)
        results = maker.call(_EPILOGUE, *given)
        for index, nodes in enumerate(cut.outputs):
            result = maker.pick(results, index)
            for node in nodes:
                y = _shape(maker, result, node, chain.members[node])
                for key, value in node.meta.items():
                    y.meta.setdefault(key, value)
                node.replace_all_uses_with(y)
    for node in reversed(chain.members):
        if not node.users:
            graph.erase_node(node)


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

    def flatten(self, operand: fx.Node, n: int) -> fx.Node:
        """Of two dimensions at most, beside (M, N)."""
        shape = operand.meta["val"].shape
        if len(shape) <= 2:
            return operand
        last = shape[-1] if isinstance(shape[-1], int) else n
        return self.call(_aten.reshape.default, operand, [-1, last])
