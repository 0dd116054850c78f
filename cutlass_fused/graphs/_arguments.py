"""What an op of a graph is called with."""

import torch


def name_arguments(node: torch.fx.Node) -> dict:
    """By name; without those that it leaves out."""
    names = [argument.name for argument in node.target._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | node.kwargs
