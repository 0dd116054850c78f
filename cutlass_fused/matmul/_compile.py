"""The switch in what torch.compile keeps: the guards of its graphs, and the keys of its caches.

A compiled graph calls PyTorch's products, which arrive at the kernels when it runs; so most graphs
would be right under any setting. One that is a CUDA graph too (`mode="reduce-overhead"`) replays
what was recorded. Therefore every graph that is compiled holds a guard on the word of the switch
that it was compiled under, and is compiled once more under another. PyTorch has no public way to
add one: this extends the method that adds its own guards on global settings, where it is found.

The keys hold the text of this package too, whatever the switch says: a graph on disk may have ops
of ours which another version put there. AOTAutograd makes its key before Inductor asks a pass for
its own, so it stands in the tag.
"""

import functools
import hashlib
import pathlib
import re
import sys

from .._when_imported import when_imported
from . import _state

_MARK = re.compile(r"\[cutlass_fused[.=][\w.=]*\]")
_DYNAMO = "torch._dynamo.output_graph"


def register_when_imported() -> None:
    """Extend TorchDynamo once a program imports it. This package does not."""
    when_imported(_DYNAMO, _extend)


def mark_cache_keys(word: str | None) -> None:
    """Say in the tag of PyTorch's caches on disk which word and which package they were written
    under. All that caches import TorchDynamo, so nothing is said, or read, before."""
    if _DYNAMO not in sys.modules:
        return
    import torch.compiler.config as config

    marks = f"[cutlass_fused={hash_package()}]"
    if word is not None:
        marks += f"[cutlass_fused.fp32_matmul={word}]"
    tag = _MARK.sub("", config.cache_key_tag) + marks
    if tag != config.cache_key_tag:
        config.cache_key_tag = tag


@functools.cache
def hash_package() -> str:
    """Of the files that decide what graphs hold: all of Python, since ops are made by many."""
    package, digest = pathlib.Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _extend(module) -> None:
    mark_cache_keys(_state.word)
    _extend_guards(module)


def _extend_guards(module) -> None:
    graph = getattr(module, "OutputGraph", None)
    init = getattr(graph, "init_ambient_guards", None)
    if init is None:
        return

    @functools.wraps(init)
    def init_ambient_guards(self):
        init(self)
        # Once more: the user may have set a tag since.
        mark_cache_keys(_state.word)
        create = functools.partial(_create_guard, _state.word)
        self.guards.add(module.GlobalStateSource().make_guard(create))

    graph.init_ambient_guards = init_ambient_guards


def _create_guard(word: str | None, builder, guard) -> None:
    add = builder.guard_manager.root.add_lambda_guard
    arguments = lambda _: _state.word == word, [f"cutlass_fused.fp32_matmul is {word!r}"]
    try:
        add(*arguments, guard.user_stack)
    except TypeError:  # torch 2.10 takes no stack
        add(*arguments)
