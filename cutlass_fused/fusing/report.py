"""What `fuse` did, as a table."""

from typing import NamedTuple

from torch import nn

from .captured.replays import Replays
from .forward import FusedForward
from .plan import Left, Plan
from .sites import Site

_UNKNOWN = "–"
_HEADER = ("site", "fused", "by", "kernel", "ms", "of roofline", "left out, and why")


class Timing(NamedTuple):
    """Of a site, as cutlass_fused.explain measures it on a GPU.

    ms, plain_ms: of the fused call, and of PyTorch's ops. share: of the roofline. kernel: what ran.
    """

    ms: float
    plain_ms: float
    share: float
    kernel: str


class Error(NamedTuple):
    """Relative L2 errors of a site against float64: the fused call's, and that of PyTorch's ops."""

    ours: float
    eager: float


class Report:
    """str(report) is the table.

    sites: what calls compute at once. Beside its `where`, each has `names`, what it computes;
        `call.function`, what computes it; `last`, the newest decision of a call; and `obstacle`,
        why its chain ends. Behind a batch norm in training it may have a `tail`, a call of its own
        for what follows, with `names`, `obstacle` and `last`.
    left: (where, why) of products and modules that stay as they are.
    errors: of the sites, by their names, where `verify` was given.
    timings: of the sites, by their names, behind cutlass_fused.explain on a GPU.
    graphs: with `graphs`, the CUDA graphs of the model; else None. `graphs.why` says why the last
        call was no replay, or is None; `graphs.graphs` holds those that were captured.
    """

    def __init__(self, model: nn.Module) -> None:
        self.name = type(model).__name__
        self.left: list[Left] = []
        self.errors: dict[str, Error] = {}
        self.timings: dict[str, Timing] = {}
        self.forwards: list[FusedForward] = []
        self.graphs: Replays | None = None

    @property
    def sites(self) -> list[Site]:
        """Those of the modes in which the model was recorded, the newest last."""
        return [s for forward in self.forwards for plan in forward.plans for s in plan.sites]

    def add(self, forward: FusedForward, plan: Plan) -> None:
        self.forwards.append(forward)
        self.leave_all(plan.left)

    def leave(self, path: str, kind: str, why: str) -> None:
        self._leave(Left(path or f"the model, {kind}", why))

    def leave_all(self, left: list[Left]) -> None:
        for each in left:
            self._leave(each)

    def _leave(self, left: Left) -> None:
        if all(each.where != left.where for each in self.left):
            self.left.append(left)

    def __str__(self) -> str:
        rows = [self._describe(site) for site in self.sites]
        rows += [(each.where, *[_UNKNOWN] * 5, each.why) for each in self.left]
        if self.errors:
            header = (*_HEADER[:-1], "error / PyTorch's", _HEADER[-1])
            names = [site.where for site in self.sites] + [None] * len(self.left)
            errors = [self._describe_error(name) for name in names]
            rows = [(*r[:-1], e, r[-1]) for r, e in zip(rows, errors, strict=True)]
        else:
            header = _HEADER
        count = len(self.sites)
        title = f"{self.name}: {count} site{'s' * (count != 1)} fused, {len(self.left)} left"
        lines = [title, *_align([header, *rows])]
        if rows and not self.timings:
            lines.append("Kernels and times need a GPU: python -m cutlass_fused.explain")
        if self.graphs is not None:
            lines.append(str(self.graphs))
        return "\n".join(lines)

    def _describe(self, site: Site) -> tuple[str, ...]:
        found = self.timings.get(site.where)
        measured = (_UNKNOWN,) * 3
        if found is not None:
            times = f"{found.ms:.3g}, PyTorch {found.plain_ms:.3g}"
            measured = found.kernel, times, f"{found.share:.0%}"
        why, names, by = site.obstacle, " + ".join(site.names), site.call.function
        if site.tail is not None:
            names, by = f"{names}, then {' + '.join(site.tail.names)}", f"{by}, then apply_program"
        if site.last is not None and site.last.why is not None:
            found = site.last.instead
            what = f"only {' + '.join(found.list_names())}" if found is not None else "PyTorch's"
            why = f"the last call was {what}: {site.last.why}"
        return site.where, names, by, *measured, why

    def _describe_error(self, where: str | None) -> str:
        found = self.errors.get(where) if where is not None else None
        return _UNKNOWN if found is None else f"{found.ours:.1e} / {found.eager:.1e}"

    __repr__ = __str__


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    rule = "  ".join("-" * width for width in widths)
    return [lines[0], rule, *lines[1:]]
