"""The functions of a region: what an epilogue computes, and the same by PyTorch's ops."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.fx import Node
from torch.nn import functional as F

from .chains import Held, write_module
from .regions import Region
from .texts import Text


class Functions(NamedTuple):
    """epilogue: of (acc, bias, e0, ..., h0, ...), elements of the product first.
    compose: of (x, weight, bias, e0, ..., h0, ...), by functions of tensors.
    plain: of (x, e0, ...), what the graph says; modules are called as they are, weights that are
        nodes come behind x.
    held: the parameters and buffers that are h0, ..., by module, place and name.
    names: of the operands e0, ..., h0, ... .
    """

    epilogue: Callable
    compose: Callable
    plain: Callable
    held: list[tuple[torch.nn.Module, str, str]]
    names: tuple[str, ...]


def make_functions(region: Region, uses_batch: bool) -> Functions:
    """uses_batch: whether a batch norm in it takes the statistics of the batch."""
    held = Held()
    inputs = [f"e{i}" for i in range(len(region.inputs))]
    lines = _write_chain(region, held, uses_batch, "acc if bias is None else acc + bias")
    operands = [*inputs, *(f"h{i}" for i in range(len(held.found)))]
    given = "".join(f", {name}" for name in operands)
    epilogue = lines.make(f"epilogue(acc{given}, bias=None)", "chain")
    first = f"{{}}(x, weight, bias)"
    composed = _write_chain(region, held, uses_batch, first)
    compose = composed.make(f"compose(x, weight, bias{given})", "chain")
    return Functions(epilogue, compose, _make_plain(region, inputs), held.found, tuple(operands))


def _write_chain(region: Region, held: Held, uses_batch: bool, first: str) -> Text:
    text = Text()
    first = first.format(text.bind(F.linear)) if "{}" in first else first
    text.names |= {node: f"e{i}" for i, node in enumerate(region.inputs)}
    _add_line(text, region.product.output, first)
    for node in region.nodes:
        if node.op == "call_module":
            _add_line(text, node, write_module(text, node, held, uses_batch))
        else:
            _add_line(text, node, text.compute(node))
    text.lines.append(f"return {text.names[region.output]}")
    return text


def _add_line(text: Text, node: Node, expression: str) -> None:
    name = f"v{len(text.lines)}"
    text.lines.append(f"{name} = {expression}")
    text.names[node] = name


def _make_plain(region: Region, inputs: list[str]) -> Callable:
    text, product = Text(), region.product
    text.names |= dict(zip(region.inputs, inputs, strict=True))
    text.names[product.x] = "x"
    weights = [node for node in (product.weight, product.bias) if node is not None]
    for node, name in zip(weights, ("weight", "bias"), strict=False):
        text.names.setdefault(node, name)
    names = [name for node, name in zip((product.weight, product.bias), ("weight", "bias"), strict=True)]
    if product.weight is not None and product.nodes[0].target not in (F.linear,):
        _write_matmul(text, product)
    else:
        for node in product.nodes:
            _add_line(text, node, text.compute(node))
    for node in region.nodes:
        _add_line(text, node, text.compute(node))
    text.lines.append(f"return {text.names[region.output]}")
    given = ", ".join(["x", *names, *inputs])
    return text.make(f"plain({given})", "plain chain")


def _write_matmul(text: Text, product) -> None:
    """x @ weight.T and the like: the second matrix is written by what stands in front of it."""
    for node in product.nodes:
        for each in node.all_input_nodes:
            _write_views(text, each)
        _add_line(text, node, text.compute(node))


def _write_views(text: Text, node: Node) -> None:
    if node in text.names:
        return
    for each in node.all_input_nodes:
        _write_views(text, each)
    _add_line(text, node, text.compute(node))
