"""What a `with` says for the whole process, also where those of several threads overlap."""

import functools
import threading
from collections.abc import Callable
from typing import Any


class Entry:
    """A `with` that is open, and what it says, or was set within it last."""

    def __init__(self, value: Any):
        self.value = value


class Nested:
    """Those that are open, of all threads. What was entered last holds, until it is left; behind
    the last of them holds what did before the first. `apply` makes it so; where it raises, nothing
    has changed."""

    def __init__(self, name: str, apply: Callable[[Any], None]):
        self._name, self._apply = name, apply
        self._outside = Entry(None)
        self._open: list[Entry] = []
        self._lock = threading.Lock()

    def set(self, value: Any) -> None:
        with self._lock:
            self._apply(value)
            self._find_last().value = value

    def enter(self, own: list[Entry], value: Any) -> None:
        """`own`: the entries of one object, whose `with` may be open several times."""
        with self._lock:
            self._apply(value)
            own.append(Entry(value))
            self._open.append(own[-1])

    def leave(self, own: list[Entry]) -> None:
        with self._lock:
            if not own:
                raise RuntimeError(f"{self._name}: it was not entered as often as it is left")
            self._open.remove(own.pop())
            self._apply(self._find_last().value)

    def _find_last(self) -> Entry:
        return self._open[-1] if self._open else self._outside


def outside_of_compiled(name: str) -> Callable[[Callable], Callable]:
    """TorchDynamo would trace a write to a global and make it behind the graph, whose products are
    then computed under the old setting. This breaks the graph, as torch.compiler.disable does,
    which would import all of TorchDynamo here."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*arguments):
            return function(*arguments)

        run._torchdynamo_disable = True
        run._torchdynamo_disable_msg = f"{name} must stand outside of what is compiled"
        return run

    return decorate
