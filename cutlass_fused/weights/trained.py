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

from .describe import describe, is_plain

# Elements of the smallest weight. By its bytes at 3 TB/s a split takes some 10 us there, and a
# comparison, which reads them alone, half of that.
LEAST = 2**22


class _Entry:
    """Of one weight: what it was when it was called, how often since the last step, and what calls
    leave, an empty tensor at first. `memory`: of the weight, as a weak reference."""

    __slots__ = ("calls", "is_called_again", "kept", "memory", "state")

    def __init__(self, memory: weakref.ref) -> None:
        self.memory, self.state = memory, None
        self.calls, self.is_called_again, self.kept = 0, False, None

    def end_step(self) -> None:
        if self.calls > 0:  # else it has ended already
            self.is_called_again = self.calls > 1
        self.calls, self.kept = 0, None


class TrainedSplits:
    """What calls leave for the next ones, by the addresses of weights. Any thread may call.

    It lives as long as the memory of the weight does, and no longer: a weight that moves to the CPU
    is the same tensor, and may not be called again. The weight itself has no weak reference, since
    ``torch.utils.swap_tensors`` refuses a tensor that has one.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.RLock()  # re-entrant: memory may be freed while it is held

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
                entry.end_step()
                entry.state = state
            entry.calls += 1
            if entry.calls == 1 and not entry.is_called_again:
                return None
            if entry.kept is None:
                entry.kept = weight.detach().new_empty(0, dtype=torch.uint8)
            return entry.kept

    def end_step(self, weights: list[Tensor] | None = None) -> None:
        """Behind a step of an optimizer with these, or with all: gives back what is kept."""
        if not self._entries:
            return
        with self._lock:
            if weights is None:
                found = list(self._entries.values())
            else:
                addresses = (w.data_ptr() for w in weights if is_plain(w))
                found = [self._entries[each] for each in addresses if each in self._entries]
            for entry in found:
                entry.end_step()

    def forget(self) -> None:
        with self._lock:
            self._entries.clear()

    def _find_entry(self, weight: Tensor) -> _Entry:
        address, memory, entries = weight.data_ptr(), weight.untyped_storage(), self._entries
        entry = entries.get(address)
        if entry is None or entry.memory() is not memory:

            def forget(reference):
                # Other memory may have got the address meanwhile.
                with self._lock:
                    if address in entries and entries[address].memory is reference:
                        del entries[address]

            entry = entries[address] = _Entry(weakref.ref(memory, forget))
        return entry
