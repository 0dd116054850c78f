"""The pass that Inductor runs on a graph. This file imports Inductor, so only Inductor's own import
leads here."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.fx_utils import FakeTensorUpdater

from ..matmul._compile import hash_package
from . import Change


class Pass(CustomGraphPass):
    """Changes of ours behind the pass that the user has there, if any.

    Inductor's settings are those of all threads. On what another thread compiles, or what is
    compiled when `stand` has ended, this is the user's pass alone.
    """

    def __init__(
        self, changes: Sequence[Change], users: Callable[[torch.fx.Graph], None] | None
    ) -> None:
        # A graph that is compiled while another one is has changes of its own.
        self.users = find_users(users)
        self._changes = tuple(changes)
        self._thread: int | None = None

    @contextlib.contextmanager
    def stand(self, config) -> Iterator[None]:
        """Be in Inductor's settings, for the one graph that this thread compiles within."""
        self._thread = threading.get_ident()
        try:
            with config.patch(post_grad_custom_pre_pass=self):
                yield
        finally:
            self._thread = None

    def __call__(self, graph: torch.fx.Graph) -> None:
        changes = self._changes if self._thread == threading.get_ident() else ()
        if self.users is not None:
            # Of the nodes that the user's pass makes or changes nobody has said what they give.
            # This remembers what is there, so it stands in front, as Inductor's own does.
            updater = FakeTensorUpdater(graph) if changes else None
            self.users(graph)
            if updater is not None:
                updater.incremental_update()
        for change in changes:
            change.apply(graph)

    def uuid(self) -> tuple | None:
        """None, so that nothing is cached, where the user's pass has no uuid."""
        users = ()
        if self.users is not None:
            if not isinstance(self.users, CustomGraphPass) or not (uuid := self.users.uuid()):
                return None
            users = (uuid,)
        return "cutlass_fused", hash_package(), *(change.key for change in self._changes), *users


def find_users(found: Callable | None) -> Callable | None:
    """The user's pass, where the settings hold this or one of ours."""
    return found.users if isinstance(found, Pass) else found
