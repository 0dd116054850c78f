"""The pass for Inductor's settings. This file imports Inductor: what leads here waits for it."""

import functools
import hashlib
import json
from collections.abc import Callable

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.fx_utils import FakeTensorUpdater

from ... import _library
from ...matmul import _state
from ...matmul._compile import hash_package
from ...precision import resolve_precision
from ._fuse import fuse_graph


class EpiloguePass(CustomGraphPass):
    """Products of a graph with what follows them as calls of our ops; `users` runs before it.

    precision: a word, or None: the switch's, else PyTorch's setting, when a graph is compiled.
    """

    def __init__(
        self,
        precision: str | None = None,
        users: Callable[[torch.fx.Graph], None] | None = None,
    ) -> None:
        self.precision, self.users = precision, users

    def __call__(self, graph: torch.fx.Graph) -> None:
        if self.users is not None:
            # Of the nodes that the user's pass makes or changes nobody has said what they give.
            updater = FakeTensorUpdater(graph)
            self.users(graph)
            updater.incremental_update()
        fuse_graph(graph, self.find_precision())

    def find_precision(self) -> str:
        return self.precision or _state.word or resolve_precision(None, "inductor_options")

    def uuid(self) -> tuple | None:
        """None, so that nothing is cached, where the user's pass has no uuid."""
        users = ()
        if self.users is not None:
            if not isinstance(self.users, CustomGraphPass) or not (uuid := self.users.uuid()):
                return None
            users = (uuid,)
        words = self.find_precision(), str(_state.word)
        return "cutlass_fused.epilogues", hash_package(), _hash_library(), *words, *users

    def __eq__(self, other) -> bool:
        is_like = isinstance(other, EpiloguePass) and self.precision == other.precision
        return is_like and self.users == other.users

    def __hash__(self) -> int:
        return hash(self.precision)  # what the user's pass is equal to is its own matter


@functools.cache
def _hash_library() -> str:
    """Of the library that is loaded, or of why none is."""
    told = json.dumps([_library.read_build_info(), _library.load_error()], sort_keys=True)
    digest = hashlib.sha256(told.encode())
    if _library.is_loaded():
        digest.update(_library.library_path().read_bytes())
    return digest.hexdigest()[:16]
