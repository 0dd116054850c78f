"""Splits of weights, kept from run to run of a graph that torch.compile makes for inference."""

import functools

import torch

from ..weights.kept import KEEPING
from . import Change, Compilation
from ._arguments import name_arguments

# Those on a GPU alone. Tests have them on a CPU.
DEVICES = {"cuda"}

# Elements of the smallest weight whose split is kept. To split it takes some 10 us there, at
# 3 TB/s read and written; the kernels in Python that find the split take as much of the host.
LEAST = 2**22

_TRANSPOSED = ([1, 0], (1, 0), [-1, -2], (-1, -2))


def find_change(graph: torch.fx.GraphModule, compilation: Compilation) -> Change | None:
    """Has splits kept, in graphs with products of ours.

    In training a weight changes with every step; a CUDA graph reads what there was when it was
    captured; a package runs without Python. What is handed to a part of a graph, as to a branch,
    may be a tensor of the graph's own.
    """
    if not compilation.is_inference or compilation.has_cuda_graphs or compilation.is_package:
        return None
    if any(isinstance(part, torch.fx.GraphModule) for part in graph.children()):
        return None
    # Under the switch, or by the user's pass, they may come only behind this.
    may_come = compilation.word is not None or compilation.has_epilogues
    if not may_come and not any(node.target in KEEPING for node in graph.graph.nodes):
        return None
    return Change("kept splits", functools.partial(keep_splits, least=LEAST))


def keep_splits(graph: torch.fx.Graph, least: int) -> None:
    """Calls of ops that find what is kept, for weights that come from outside of the graph."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in KEEPING:
            continue
        arguments = name_arguments(node)
        weight = _find_source(arguments["weight"])
        if arguments.get("weight_split") is None and _can_be_kept(weight, least):
            node.replace_input_with(arguments["weight"], weight)
            node.target = KEEPING[node.target]


def _find_source(weight: torch.fx.Node) -> torch.fx.Node:
    """The weight itself, where it was transposed and back: the switch's products take it so."""
    inner = _find_transposed(weight)
    outer = None if inner is None else _find_transposed(inner)
    return weight if outer is None else outer


def _find_transposed(node: torch.fx.Node) -> torch.fx.Node | None:
    if node.target is torch.ops.aten.t.default:
        return node.args[0]
    if node.target is torch.ops.aten.permute.default and node.args[1] in _TRANSPOSED:
        return node.args[0]
    return None


def _can_be_kept(weight: torch.fx.Node, least: int) -> bool:
    if weight.op != "placeholder":
        return False
    value = weight.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.dtype == torch.float32
        and value.device.type in DEVICES
        and value.dim() == 2
        and all(type(size) is int for size in value.shape)
        and value.numel() >= least
        and not any(_may_write(user) for user in weight.users)
    )


def _may_write(user: torch.fx.Node) -> bool:
    if user.op == "output":
        return False
    return not isinstance(user.target, torch._ops.OpOverload) or user.target._schema.is_mutable
