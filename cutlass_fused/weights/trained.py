"""Parts of weights that are trained, kept beyond the graph of a step.

Where a weight stands still, as while gradients are accumulated or a model is evaluated without
``no_grad``, each forward pass would split it anew. Version and storage say on the host that it
may stand still; PyTorch does not count all writes, so a checksum says on the GPU that it does
(``split_weight_if_changed``), and the parts are made again there if it does not.

The first forward pass under a description keeps nothing, the second does: a step of training that
changes its weights takes the time and the memory that it took.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

# What is only known to have been seen belongs to no weight that can be asked whether it lives.
_MOST_SEEN = 4096


class Parts(NamedTuple):
    """What split_weight_checked returned."""

    split: Tensor
    checksum: Tensor


class _Kept(NamedTuple):
    reference: weakref.ref
    state: tuple
    parts: Parts


class TrainedSplits:
    """Parts by weight. `split(weight, precision)` makes them, `describe(weight)` is all that is
    known of a weight without its contents. Any thread may call.

    Parts belong to one stream: on another one a description is another one. So no event is needed
    where the GPU makes them again: graphs that hold them read them on the stream of their forward
    pass, as PyTorch's backward passes do, and so in order with all that writes to them. Threads
    that share a stream may launch in any order: what says whether a weight has changed is about
    the parts that are there, whoever made them.
    """

    def __init__(self, split: Callable, describe: Callable) -> None:
        self._split, self._describe = split, describe
        # Without a weak reference, beside which torch.utils.swap_tensors refuses a tensor: another
        # tensor that took the id, and looks the same, has parts of its own one pass too early.
        self._seen: dict[int, tuple] = {}
        self._kept: dict[int, _Kept] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(
        self, weight: Tensor, precision: str, stream: int, asks: Callable[[], bool]
    ) -> Parts | None:
        """Those that are kept, to be looked at before they are read. `asks`: whether the call would
        read any, and they can be kept."""
        key, state = id(weight), (precision, stream, *self._describe(weight))
        kept = self._kept.get(key)
        if kept is not None:
            if kept.state == state and kept.reference() is weight:
                return kept.parts
            self._kept.pop(key, None)
        if self._seen.get(key) != state:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[key] = state
            return None
        return self._keep(weight, precision, state) if asks() else None

    def _keep(self, weight: Tensor, precision: str, state: tuple) -> Parts:
        key, forgotten, entries = id(weight), self._forgotten, self._kept
        parts = Parts(*self._split(weight, precision))

        def forget(reference: weakref.ref) -> None:
            kept = entries.get(key)  # another weight may have got the id meanwhile
            if kept is not None and kept.reference is reference:
                entries.pop(key, None)

        if self._forgotten == forgotten:
            entries[key] = _Kept(weakref.ref(weight, forget), state, parts)
        return parts

    def forget(self, weight: Tensor | None = None) -> None:
        """What is kept and known of this weight, or of all."""
        self._forgotten += 1  # also what another thread is about to keep
        if weight is None:
            self._seen.clear()
            self._kept.clear()
        else:
            self._seen.pop(id(weight), None)
            self._kept.pop(id(weight), None)
