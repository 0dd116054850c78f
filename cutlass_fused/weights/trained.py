"""Splits of weights that are trained, where more than one pass reads them.

A step of training splits a weight in its forward pass, and the parts live until its backward pass
is done. Gradient accumulation, an evaluation that does not say ``no_grad``, and a weight that a
model uses twice call again before an optimizer has stepped. For such a weight the parts stay where
they are, and the next call compares them with the weight on the GPU, row by row, by a hash of its
bits. It splits the rows that have changed: a write that PyTorch does not count is found, too.
"""

import threading
import weakref

import torch
from torch import Tensor

from .describe import describe

# Elements of the smallest weight. To compare takes half as long as to split, which takes some 10 us
# there.
LEAST = 2**22


class _Entry:
    """Of one weight: since when it is as it is, and what its calls leave.

    `calls`: since the last step. `kept`: an empty tensor until a call has left something in it.
    """

    __slots__ = (
        "__weakref__",
        "calls",
        "is_called_again",
        "kept",
        "memory",
        "reference",
        "state",
    )

    def __init__(self, reference: weakref.ref) -> None:
        self.reference, self.state, self.memory = reference, None, None
        self.is_called_again = False
        self.end_step()

    def end_step(self) -> None:
        self.calls, self.kept = 0, None


class TrainedSplits:
    """What calls leave for the next ones, by weight. Any thread may call."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.RLock()  # re-entrant: a weight may die while it is held

    def __len__(self) -> int:
        return sum(entry.kept is not None for entry in list(self._entries.values()))

    @property
    def is_called(self) -> bool:
        return bool(self._entries)

    def find(self, weight: Tensor, precision: str, stream: int) -> Tensor | None:
        """What the call before left for this one, or an empty tensor for what this one leaves; None
        where nothing is to be left.

        The first call of a weight leaves nothing, and a call on another stream starts anew. Where
        the last step called a weight twice, the first call of this one leaves its parts.
        """
        with self._lock:
            entry = self._find_entry(weight)
            state = precision, stream, *describe(weight)
            if entry.state != state:
                self._end_step(entry)
                entry.state = state
            entry.calls += 1
            if entry.calls == 1 and not entry.is_called_again:
                return None
            if entry.kept is None:
                entry.kept = weight.detach().new_empty(0, dtype=torch.uint8)
                entry.memory = _watch(weight, entry)
            return entry.kept

    def end_step(self, weights: list[Tensor] | None = None) -> None:
        """Behind a step of an optimizer with these, or with all: gives back what is kept."""
        with self._lock:
            if weights is None:
                found = list(self._entries.values())
            else:
                found = [self._entries[id(w)] for w in weights if id(w) in self._entries]
            for entry in found:
                self._end_step(entry)

    def forget(self, weights: list[Tensor] | None = None) -> None:
        """Gives back what is kept of these, or of all, and has no weak reference to them left:
        ``torch.utils.swap_tensors`` refuses a tensor that has one."""
        with self._lock:
            if weights is None:
                self._entries.clear()
            else:
                for weight in weights:
                    self._entries.pop(id(weight), None)

    def _end_step(self, entry: _Entry) -> None:
        if entry.calls > 0:  # else it has ended already
            entry.is_called_again = entry.calls > 1
        entry.end_step()

    def _find_entry(self, weight: Tensor) -> _Entry:
        key, entries = id(weight), self._entries
        entry = entries.get(key)
        if entry is None or entry.reference() is not weight:

            def forget(reference):
                # Another tensor may have got the id meanwhile.
                with self._lock:
                    if key in entries and entries[key].reference is reference:
                        del entries[key]

            entry = entries[key] = _Entry(weakref.ref(weight, forget))
        return entry


def _watch(weight: Tensor, entry: _Entry) -> weakref.ref:
    """Gives back what is kept when the weight's memory is gone: a weight that moved to the CPU is
    the same tensor object, and may not be called again."""
    reference_to_entry = weakref.ref(entry)

    def forget(reference):
        found = reference_to_entry()
        if found is not None and found.memory is reference:
            found.end_step()

    return weakref.ref(weight.untyped_storage(), forget)
