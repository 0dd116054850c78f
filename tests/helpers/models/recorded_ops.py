"""Records the ops that a piece of code calls, below autograd and autocast."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class RecordOps(TorchDispatchMode):
    """Within `with RecordOps() as record`: the ops of this package with their arguments, `calls`,
    and the names of all ops, PyTorch's too."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[str, dict]] = []
        self.names: list[str] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.names.append(op._opname)
        if op.namespace == "cutlass_fused":
            names = [argument.name for argument in op._schema.arguments]
            named = dict(zip(names, args, strict=False))
            self.calls.append((op._opname, {**named, **kwargs}))
        return op(*args, **kwargs)


def record_precision(function) -> list[str]:
    """The precision of every op that `function()` calls."""
    with torch.no_grad(), RecordOps() as record:
        function()
    return [arguments.get("precision", "ieee") for _, arguments in record.calls]
