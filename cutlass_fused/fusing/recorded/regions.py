"""The chain behind a product: which nodes of a graph one call can compute."""

import dataclasses

from torch import nn
from torch.fx import Graph, Node

from .chains import (
    find_obstacle,
    is_barrier,
    is_batch_norm,
    is_idle_dropout,
    is_size,
    is_view,
    writes,
)
from .products import Product, find_product


@dataclasses.dataclass
class Region:
    """nodes: in their order, behind those of the product; the last one gives the result.
    inputs: nodes around it that they read, beside the product's own.
    """

    product: Product
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]

    @property
    def output(self) -> Node:
        return self.nodes[-1] if self.nodes else self.product.output


class Growth:
    """What could be in the chain of a product, and why it ends."""

    def __init__(self, graph: Graph, product: Product, claimed: set[Node]) -> None:
        self.product = product
        self.obstacle = ""
        self._order = {node: index for index, node in enumerate(graph.nodes)}
        self._joined: list[Node] = []
        self._grow(graph, claimed)

    def _grow(self, graph: Graph, claimed: set[Node]) -> None:
        inside, tainted = {self.product.output}, set(self.product.nodes[:-1])
        has_norm, is_behind = False, False
        for node in graph.nodes:
            if node is self.product.output:
                is_behind = True
                continue
            if not is_behind or node.op in ("placeholder", "get_attr", "output"):
                continue
            given = node.all_input_nodes
            is_chained = any(each in inside for each in given)
            if is_chained and node not in claimed:
                why = self._find_obstacle(node, given, inside, tainted, has_norm)
                if why is None:
                    inside.add(node)
                    self._joined.append(node)
                    has_norm |= is_batch_norm(node)
                    continue
                self.obstacle = self.obstacle or why
            if is_chained or any(each in tainted for each in given):
                tainted.add(node)
            if is_barrier(node):
                break

    def _find_obstacle(self, node, given, inside, tainted, has_norm: bool) -> str | None:
        if any(each in tainted for each in given):
            return "it meets a result that the chain cannot hold"
        if find_product(node) is not None:
            return ""  # its own chain begins
        if any(is_size(each) for each in given):
            return "it computes with sizes of tensors"
        why = find_obstacle(node)
        if why is None and writes(node):
            why = _find_written(node, inside)
        if why is None and is_batch_norm(node):
            if has_norm:
                why = "it is a second batch norm"
            elif self._reads_statistics(node):
                why = "something else reads the statistics of the batch norm, or it runs twice"
        return why

    def _reads_statistics(self, norm: Node) -> bool:
        module = norm.meta["module"]
        for node in self._order:
            if node.op == "get_attr" and node.meta["owner"] is module:
                return True
            if node is not norm and node.op == "call_module" and node.meta["module"] is module:
                return True
        return False

    def list_regions(self) -> list[Region]:
        """Those of which nothing but the result is read elsewhere, the largest first, and the
        product alone last. One that ends in a view comes behind that without."""
        found, views = [], []
        for output in reversed(self._joined):
            nodes = self._find_needed(output)
            inside = {*nodes, self.product.output}
            inner = inside - {output}
            if all(user in inside for node in inner for user in node.users):
                region = self._make(nodes)
                if is_view(output):
                    views.append(region)
                else:
                    found += [region, *views]
                    views = []
        outputs = [region.output for region in (*found, *views)]
        if self._joined and self._joined[-1] not in outputs and not self.obstacle:
            self.obstacle = "a result within the chain is read elsewhere"
        # Views of the product alone are none of its chain.
        return [*found, self._make(())]

    def list_norms(self) -> list[nn.Module]:
        """The batch norms that could be in it."""
        return [node.meta["module"] for node in self._joined if is_batch_norm(node)]

    def _find_needed(self, output: Node) -> tuple[Node, ...]:
        joined, needed, waiting = set(self._joined), set(), [output]
        while waiting:
            node = waiting.pop()
            if node in joined and node not in needed:
                needed.add(node)
                waiting += node.all_input_nodes
        return tuple(sorted(needed, key=self._order.__getitem__))

    def _make(self, nodes: tuple[Node, ...]) -> Region:
        inside = {*nodes, self.product.output}
        inputs = dict.fromkeys(
            each for node in nodes for each in node.all_input_nodes if each not in inside
        )
        return Region(self.product, nodes, tuple(inputs))


def _find_written(node: Node, inside: set[Node]) -> str | None:
    """Whether what the node writes to is the chain's own, and read by nothing else."""
    written = node.args[0] if node.args else None
    while isinstance(written, Node) and written in inside:
        if len(written.users) > 1:
            break
        if not _may_be_view(written):
            return None
        written = written.args[0]
    return "it writes to a tensor that something else reads"


def _may_be_view(node: Node) -> bool:
    """Whether its result may be the memory of what it is given."""
    if is_idle_dropout(node):
        return True
    if node.op == "call_module":
        return type(node.meta["module"]).__name__ == "Identity" or writes(node)
    if writes(node):
        return True
    name = getattr(node.target, "__name__", str(node.target))
    views = ("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "transpose", "t")
    views += ("detach", "contiguous", "expand", "getitem", "getattr", "chunk", "split", "narrow")
    return name in (*views, "permute")
