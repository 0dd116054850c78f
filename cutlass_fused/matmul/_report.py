"""What arrived at the kernels, and what cannot."""

import collections
import threading

from torch import Tensor

from . import _state
from ._install import install, put_over
from ._nested import Entry, Nested, outside_of_compiled
from ._seen import NEVER, NOT_SERVED, SEEN

SERVED = "served"
COMPILED = "served by the graph, when it runs"
_NO_REASONS = (SERVED, COMPILED, NOT_SERVED)
_MOST_ROWS = 1000  # of different shapes; further ones are added up by op
_lock = threading.Lock()  # of the rows of all reports


class matmul_report:
    """Count the products that PyTorch is asked for: `with matmul_report() as report: model(x)`.

    `print(report)` then tells, for each op and shapes, how often it was called and whether it was
    served, or left to PyTorch and why; which calls were seen that are never served, such as
    convolutions; and what never arrives here, so that no report can count it. It counts what all
    threads compute while the `with` is open, whether the switch is on or off. Products that a
    compiled graph computes past PyTorch's ops (docs/fp32_matmul.md) are counted once, when the
    graph is compiled, not when it runs or comes from a cache. 1000 different rows are kept, and
    those that follow are added up by op. Of several that are open the one
    that was entered last counts.

    Attributes:
        rows: {(op, shapes, outcome): calls}, where shapes is a tuple of the tensors' sizes and
            outcome is "served", "served by the graph, when it runs", or the reason.

    The first report puts kernels over those of PyTorch that stay, as the switch does. While it is
    open each call of these ops takes some microseconds more of the host's time; from then on as
    much where this torch has no kernels in C++, and little where it has.
    """

    def __init__(self):
        self.rows: collections.Counter = collections.Counter()
        self._entries: list[Entry] = []

    def __enter__(self) -> "matmul_report":
        _enter(self._entries, self)
        return self

    def __exit__(self, *exception) -> None:
        _leave(self._entries)

    def count(self, op: str, arguments: tuple, outcome) -> None:
        """One call; outcome is a reason, or anything else for a call that was served."""
        shapes = tuple(tuple(value.shape) for value in arguments if isinstance(value, Tensor))
        self._add(op, shapes, outcome if isinstance(outcome, str) else SERVED)

    def count_compiled(self, op: str, arguments: tuple, reason: str | None) -> None:
        """One product of a graph that is compiled; sizes may be symbols."""
        shapes = tuple(
            tuple(size if type(size) is int else str(size) for size in value.shape)
            for value in arguments
        )
        self._add(op, shapes, COMPILED if reason is None else reason)

    def _add(self, op: str, shapes: tuple, outcome: str) -> None:
        row = op, shapes, outcome
        with _lock:
            if row not in self.rows and len(self.rows) >= _MOST_ROWS:
                row = op, "further shapes", row[2]
            self.rows[row] += 1

    def __str__(self) -> str:
        with _lock:
            calls = dict(self.rows)
        parts = [
            ("Served", [r for r in calls if r[2] == SERVED]),
            ("Left to PyTorch", [r for r in calls if r[2] not in _NO_REASONS]),
            ("Seen, not served", [r for r in calls if r[2] == NOT_SERVED]),
        ]
        if compiled := [r for r in calls if r[2] == COMPILED]:
            parts.insert(1, ("Compiled into graphs", compiled))
        lines = []
        for title, rows in parts:
            lines.append(f"{title}:" if rows else f"{title}: nothing")
            for row in sorted(rows, key=lambda row: -calls[row]):
                lines.append(f"  {calls[row]:>7} {_describe(*row)}")
        return "\n".join([*lines, "Never arrives, so that nothing here counts it:", *NEVER])


def _describe(op: str, shapes, outcome: str) -> str:
    sizes = shapes if isinstance(shapes, str) else ", ".join("x".join(map(str, s)) for s in shapes)
    return f"{op} {sizes}" + ("" if outcome in _NO_REASONS else f": {outcome}")


def _apply(report: matmul_report | None) -> None:
    if report is not None:
        install()
        put_over("seen", "CUDA", SEEN)
    _state.set_report(report)


_reports = Nested("matmul_report", _apply)
_decorate = outside_of_compiled("cutlass_fused.matmul_report")
_enter, _leave = map(_decorate, (_reports.enter, _reports.leave))
