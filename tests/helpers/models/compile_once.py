"""Compiles a function for every batch at once, and counts."""

import torch
from torch._dynamo.testing import CompileCounterWithBackend


def compile_once(function, backend="aot_eager"):
    """function compiled as one graph with a dynamic batch, and the counter of its compilations."""
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(function, backend=counter, fullgraph=True)

    def run(x, *others):
        x = x.clone()
        torch._dynamo.mark_dynamic(x, 0)
        return compiled(x, *others)

    return run, counter
