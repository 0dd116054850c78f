"""The pass that Inductor runs on a graph. This file imports Inductor, so only Inductor's own import
leads here."""

import functools
import hashlib
import pathlib
from collections.abc import Callable, Sequence

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

from . import Change


class Pass(CustomGraphPass):
    """Changes of ours behind the pass that the user has there, if any."""

    def __init__(
        self, changes: Sequence[Change], users: Callable[[torch.fx.Graph], None] | None
    ) -> None:
        # A graph that is compiled while another one is has changes of its own.
        self.users = users.users if isinstance(users, Pass) else users
        self._changes = tuple(changes)

    def __call__(self, graph: torch.fx.Graph) -> None:
        if self.users is not None:
            self.users(graph)
        for change in self._changes:
            change.apply(graph)

    def uuid(self) -> tuple | None:
        """None, so that nothing is cached, where the user's pass has no uuid."""
        users = ()
        if self.users is not None:
            if not isinstance(self.users, CustomGraphPass) or not (uuid := self.users.uuid()):
                return None
            users = (uuid,)
        return "cutlass_fused", _hash_package(), *(change.key for change in self._changes), *users


@functools.cache
def _hash_package() -> str:
    """Of the files that the changes are made by."""
    package, digest = pathlib.Path(__file__).parent.parent, hashlib.sha256()
    for folder in ("graphs", "matmul"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
