"""The switch in what torch.compile keeps: the guards of its graphs, and the keys of its caches.

A compiled graph calls PyTorch's products, which arrive at the kernels when it runs; so most graphs
would be right under any setting. One that is a CUDA graph too (`mode="reduce-overhead"`) replays
what was recorded. Therefore every graph that is compiled holds a guard on the word of the switch
that it was compiled under, and is compiled once more under another. PyTorch has no public way to
add one: this extends the method that adds its own guards on global settings, where it is found.
"""

import functools
import re

from .._when_imported import when_imported
from . import _state

_MARK = re.compile(r"\[cutlass_fused\.fp32_matmul=\w+\]")


def register_when_imported() -> None:
    """Extend TorchDynamo once a program imports it. This package does not."""
    when_imported("torch._dynamo.output_graph", _extend_guards)


def mark_cache_keys(word: str | None) -> None:
    """Say in the tag of PyTorch's caches on disk which word they were written under."""
    import torch.compiler.config as config

    tag = _MARK.sub("", config.cache_key_tag)
    config.cache_key_tag = tag if word is None else f"{tag}[cutlass_fused.fp32_matmul={word}]"


def _extend_guards(module) -> None:
    graph = getattr(module, "OutputGraph", None)
    init = getattr(graph, "init_ambient_guards", None)
    if init is None:
        return

    @functools.wraps(init)
    def init_ambient_guards(self):
        init(self)
        create = functools.partial(_create_guard, _state.word)
        self.guards.add(module.GlobalStateSource().make_guard(create))

    graph.init_ambient_guards = init_ambient_guards


def _create_guard(word: str | None, builder, guard) -> None:
    builder.guard_manager.root.add_lambda_guard(
        lambda _: _state.word == word,
        [f"cutlass_fused.fp32_matmul is {word!r}"],
        guard.user_stack,
    )
