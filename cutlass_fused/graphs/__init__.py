"""What this package changes in the graphs that torch.compile hands to Inductor, and AOTInductor.

`_products` replaces PyTorch's fp32 products under the switch, `_kept` has the splits of weights
kept. Each says for a graph whether it has something to change. Only then a pass is there, in the
place that Inductor has for one in front of its own passes, and only while that graph is compiled.
`epilogues` has the pass of a user who asks for one: in that place, and in front of these.

PyTorch has no public way to ask before each graph: this extends the function that compiles one,
where it is found. A pass that stood in Inductor's settings all the time would be part of the cache
keys of every graph of the process, and would lie over one of the user's, or under it. What is in
all keys is the text of this package: ..matmul._compile.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch

from .._when_imported import when_imported
from ..matmul import _state
from . import epilogues


class Compilation(NamedTuple):
    """How a graph is compiled.

    is_inference: no gradient can be asked for.
    is_package: it is to run without Python.
    has_cuda_graphs: it is captured, and replayed.
    skips_dispatcher: its products would not be calls of PyTorch's ops.
    has_epilogues: the pass of `epilogues` is there, which puts products of ours into it.
    word: that of the switch.
    """

    is_inference: bool
    is_package: bool
    has_cuda_graphs: bool
    skips_dispatcher: bool
    has_epilogues: bool = False
    word: str | None = None


class Change(NamedTuple):
    """key: in the keys of caches; with another one `apply` makes another graph of the same."""

    key: Hashable
    apply: Callable[[torch.fx.Graph], None]


def register_when_imported() -> None:
    """Extend Inductor once a program imports it, and TorchDynamo. This package does not."""
    when_imported("torch._inductor.compile_fx", _extend)
    epilogues.register_when_imported()


def find_changes(graph: torch.fx.GraphModule, compilation: Compilation) -> list[Change]:
    """What is to be changed in this graph, in order."""
    # Not above: they need all of this package, and PyTorch's compiler.
    from . import _kept, _products

    found = [part.find_change(graph, compilation) for part in (_products, _kept)]
    return [change for change in found if change is not None]


def _extend(module) -> None:
    compile_graph = getattr(module, "_compile_fx_inner", None)
    if compile_graph is None:
        return

    @functools.wraps(compile_graph)
    def compile_changed(graph, *args, **options):
        # Not above: there it would import what a program may not need.
        from torch._dynamo.convert_frame import compile_lock

        # Inductor's settings are those of all threads, so only one may have a pass in them. This is
        # PyTorch's lock, which AOTInductor does not take itself: with one of ours beside it, two
        # threads could wait for each other.
        with compile_lock, _stand_in(module.config, graph, _describe(module, options)):
            return compile_graph(graph, *args, **options)

    module._compile_fx_inner = compile_changed


def _stand_in(
    config, graph: torch.fx.GraphModule, compilation: Compilation
) -> contextlib.AbstractContextManager:
    """Have in Inductor's settings what this graph needs."""
    from ._pass import Pass, find_users

    changes = find_changes(graph, compilation)
    found = config.post_grad_custom_pre_pass
    users = find_users(found)
    if changes:
        return Pass(changes, users).stand(config)
    if users is not found:
        # Of a graph that is being compiled around this one; or left behind, by a user's patch that
        # began before ours ended.
        return config.patch(post_grad_custom_pre_pass=users)
    return contextlib.nullcontext()


def _describe(module, options: dict) -> Compilation:
    config, is_package = module.config, bool(module.V.aot_compilation)
    has_cuda_graphs = options.get("cudagraphs")
    if has_cuda_graphs is None:
        has_cuda_graphs = config.triton.cudagraphs
    skips = is_package or config.cpp_wrapper or config.max_autotune or config.max_autotune_gemm
    # Not above: it imports Inductor.
    from .epilogues._pass import EpiloguePass

    has_epilogues = isinstance(_find_first(config), EpiloguePass)
    return Compilation(
        bool(options.get("is_inference")),
        is_package,
        bool(has_cuda_graphs),
        bool(skips),
        has_epilogues,
        _find_word(bool(options.get("is_backward"))),
    )


# Of forward passes, by what PyTorch calls both passes of a graph by.
_words: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _find_word(is_backward: bool) -> str | None:
    """Of a backward pass that under which its forward pass was compiled. PyTorch compiles it when
    it is called first, and keeps it on disk under the key that the forward pass had: what it holds
    may not depend on where that was."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return _state.word
    if not is_backward:
        _words[context] = _state.word
    return _words.get(context, _state.word)


def _find_first(config):
    """The pass that is not one of `Pass`."""
    from ._pass import find_users

    return find_users(config.post_grad_custom_pre_pass)
