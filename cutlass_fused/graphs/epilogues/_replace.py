"""A chain's cut as a call of our op in its graph."""

import torch
from torch import fx

from ..._namespace import ops
from ._chain import COLUMN, FULL, Chain
from ._cut import Cut
from ._make import Maker
from .forms.fold import Shift, Source

_aten = torch.ops.aten
_EPILOGUE = ops.linear_epilogue.default


def replace(chain: Chain, cut: Cut, precision: str) -> None:
    """Its place is behind all that it reads; what reads it may stand in front: see sort."""
    product, graph = chain.product, chain.product.node.graph
    maker = Maker(graph, product.node, cut.outputs[-1][-1])
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


def _replace_truths(chain: Chain, cut: Cut, maker: Maker) -> None:
    """Those that are told by a result, where something behind the members reads them."""
    for truth, node in chain.same_signs.items():
        if any(user not in cut.members for user in truth.users) and node in maker.made:
            y = maker.call(_aten.gt.Scalar, maker.made[node], 0)
            truth.replace_all_uses_with(y, lambda user: user not in cut.members)


def _shape(maker: Maker, result: fx.Node, node: fx.Node, member) -> fx.Node:
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
