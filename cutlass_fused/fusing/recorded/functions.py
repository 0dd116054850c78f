"""The functions of a region: what an epilogue computes, and the same by PyTorch's ops."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.fx import Node
from torch.nn import functional as F

from .chains import Held, is_idle_dropout, write_module
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
    composed = _write_chain(region, held, uses_batch, "{}(x, weight, bias)")
    compose = composed.make(f"compose(x, weight, bias{given})", "chain")
    return Functions(epilogue, compose, _make_plain(region), held.found, tuple(operands))


def make_functions_behind(region: Region) -> Functions:
    """Of a region whose product is a node that stays as it is, and has the result v. `epilogue` is
    of (v, e0, ..., h0, ...), `plain` of (v, e0, ...)."""
    held, output = Held(), region.product.output
    inputs = [f"e{i}" for i in range(len(region.inputs))]
    lines = _write_chain(region, held, False, "acc")
    names = (*inputs, *(f"h{i}" for i in range(len(held.found))))
    epilogue = lines.make(f"epilogue({', '.join(['acc', *names])})", "chain")
    text = Text()
    text.names |= dict(zip(region.inputs, inputs, strict=True)) | {output: "v"}
    for node in region.nodes:
        _add_line(text, node, text.compute(node))
    text.lines.append(f"return {text.names[region.output]}")
    plain = text.make(f"plain({', '.join(['v', *inputs])})", "plain chain")

    def compose(v, weight, bias, *operands):
        return epilogue(v, *operands)

    return Functions(epilogue, compose, plain, held.found, names)


def _write_chain(region: Region, held: Held, uses_batch: bool, first: str) -> Text:
    text, is_composed = Text(), "{}" in first
    first = first.format(text.bind(F.linear)) if is_composed else first
    text.names |= {node: f"e{i}" for i, node in enumerate(region.inputs)}
    _add_line(text, region.product.output, first)
    for node in region.nodes:
        if node.op == "call_module":
            call = write_module(text, node, held, uses_batch, is_composed)
            _add_line(text, node, call)
        elif is_idle_dropout(node):
            _add_line(text, node, text.write(node.args[0]))
        else:
            _add_line(text, node, text.compute(node))
    text.lines.append(f"return {text.names[region.output]}")
    return text


def _add_line(text: Text, node: Node, expression: str) -> None:
    name = f"v{len(text.lines)}"
    text.lines.append(f"{name} = {expression}")
    text.names[node] = name


def write_given(text: Text, region: Region) -> list[str]:
    """The arguments of a function of (x, e0, ...), with weights that are nodes behind x, which get
    their names in the text."""
    product, inputs = region.product, [f"e{i}" for i in range(len(region.inputs))]
    text.names |= dict(zip(region.inputs, inputs, strict=True))
    text.names[product.x] = "x"
    weights = {"weight": product.weight, "bias": product.bias}
    weights = {name: node for name, node in weights.items() if node is not None}
    for name, node in weights.items():
        text.names.setdefault(node, name)
    return ["x", *weights, *inputs]


def _make_plain(region: Region) -> Callable:
    text = Text()
    given = write_given(text, region)
    for node in region.product.nodes:
        for each in node.all_input_nodes:
            _write_views(text, each)
        _add_line(text, node, text.compute(node))
    for node in region.nodes:
        _add_line(text, node, text.compute(node))
    text.lines.append(f"return {text.names[region.output]}")
    return text.make(f"plain({', '.join(given)})", "plain chain")


def _write_views(text: Text, node: Node) -> None:
    """A second matrix is written by what stands in front of it, as weight.T is."""
    if node in text.names:
        return
    for each in node.all_input_nodes:
        _write_views(text, each)
    _add_line(text, node, text.compute(node))
