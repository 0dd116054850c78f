"""Clones of tensors that sites alone read: where no gradient is recorded they need not be made.

A forward keeps `x.clone()` for a residual, say, so that nobody writes to it. What a site is given
it only reads.
"""

from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from .chains import is_barrier

_DETACHES = (torch.detach, torch.Tensor.detach)


def find_idle_clones(graph: Graph, of_sites: Iterable[Node]) -> set[Node]:
    """of_sites: the nodes that sites compute. A clone is idle if nothing else reads it, and nothing
    is written to any tensor until the last of them has."""
    inside, order = set(of_sites), {node: index for index, node in enumerate(graph.nodes)}
    barriers = [order[node] for node in graph.nodes if is_barrier(node)]
    found = set()
    for node in graph.nodes:
        readers = _list_readers(node) if _is_clone(node) else []
        if not readers or not all(reader in inside for reader in readers):
            continue
        last = max(order[reader] for reader in readers)
        if not any(order[node] < barrier <= last for barrier in barriers):
            found.add(node)
    return found


def _is_clone(node: Node) -> bool:
    is_called = (node.op == "call_method" and node.target == "clone") or (
        node.op == "call_function" and node.target in (torch.clone, torch.Tensor.clone)
    )
    return is_called and len(node.args) == 1 and not node.kwargs


def _list_readers(node: Node) -> list[Node]:
    """Of the node, through views of it that are detached."""
    readers = []
    for user in node.users:
        is_method = user.op == "call_method" and user.target == "detach"
        is_detach = is_method or (user.op == "call_function" and user.target in _DETACHES)
        readers += _list_readers(user) if is_detach else [user]
    return readers
