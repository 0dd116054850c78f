"""The pass itself, over a graph."""

import functools

import torch
from torch import fx

from ...matmul import _state
from ...programs.tracing.trace import isolated
from .. import _products
from ._chain import Chain
from ._cut import find_cut
from ._norms import find_norm, replace_norm
from ._product import Product, find_product
from ._replace import replace
from ._worth import find_sizes, is_chosen, is_worth, is_worth_alone

# Those on a GPU alone. Tests have them on a CPU.
DEVICES = {"cuda"}


def fuse_graph(graph: fx.Graph, precision: str) -> None:
    """Programs behind products, where that is worth it; and the products of fp32 that are left."""
    found = 0
    for node in list(graph.nodes):
        product = find_product(node, DEVICES) if not node._erased else None
        if product is not None and _fuse(product, precision):
            found += 1
    if found:
        _sort(graph)
        graph.eliminate_dead_code()
    _products.replace_products(graph, precision, functools.partial(is_chosen, precision))


def _fuse(product: Product, precision: str) -> bool:
    norm = find_norm(product)
    if norm is not None and is_worth_alone(*find_sizes(product), precision):
        replace_norm(product, norm, precision)
        _count(product)
        return True
    with isolated():
        chain = Chain(product)
        if len(chain.members) < 2:
            return False
        cut = find_cut(chain, must_be_within=product.value.dtype != torch.float32)
    if cut is None or not is_worth(product, cut, precision):
        return False
    replace(chain, cut, precision)
    _count(product)
    return True


def _count(product: Product) -> None:
    if _state.report is not None:
        reads = [product.a, product.b] if product.c is None else [product.c, product.a, product.b]
        name = product.node.target._schema.name.partition("::")[2]
        _state.report.count_compiled(name, [each.meta["val"] for each in reads], None)


def _sort(graph: fx.Graph) -> None:
    """What reads a result behind that, and all else in its order."""
    from torch._inductor.pattern_matcher import stable_topological_sort

    stable_topological_sort(graph)
