"""Ops that look for the split of their weight when they run, for graphs of torch.compile.

What is kept of a weight cannot be asked while a graph is traced, since the weight may be another
one when that runs. `linear_kept` asks then, and calls `linear` with what it finds; so does each op
that takes a split. They are kernels in Python: no exported program or package holds one. Nor do
they give the split to the graph, which might write other numbers to the memory of its own tensors.
"""

import torch
from torch import Tensor

from .. import _library
from .splits import find_split


def _define(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    schema = op._schema
    names = [argument.name for argument in schema.arguments]

    def kernel(*values, **options) -> Tensor:
        arguments = dict(zip(names, values, strict=False)) | options
        weight = arguments["weight"]
        # A graph has tensors of its own too. It writes to them in ways that PyTorch does not count,
        # and a DTensor's part is one. A parameter is the user's.
        if type(weight) is torch.nn.Parameter:
            split = find_split(weight, arguments.get("precision", "ieee"))
            arguments["weight_split"] = split
        return op(**arguments)

    name = schema.name.partition("::")[2]
    return _library.define_beside(name, f"{name}_kept", kernel)


def _takes_split(op: torch._ops.OpOverload) -> bool:
    """Training moves statistics in place, which graphs hold in another form."""
    schema = op._schema
    names = {argument.name for argument in schema.arguments}
    return {"weight", "weight_split"} <= names and not schema.is_mutable


def _make() -> dict[torch._ops.OpOverload, torch._ops.OpOverload]:
    every = [getattr(_library.ops, name).default for name in _library.list_tensor_ops()]
    return {op: _define(op) for op in every if _takes_split(op)}


# Op -> the one that looks for a split.
KEEPING = _make()
