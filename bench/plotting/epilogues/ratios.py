"""What the rows of bench.epilogues say: ours beside the peers, and beside no epilogue."""

from collections.abc import Iterable
from typing import NamedTuple

from ...epilogues.programs import PROGRAMS
from ...measure.results import PRECISIONS

SIMPLE_PEERS = "eager", "compile"
PEERS = *SIMPLE_PEERS, "max_autotune"

Variants = dict[str, dict]  # the rows of a case


class Case(NamedTuple):
    program: str
    precision: str
    m: int
    n: int
    k: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    def __str__(self) -> str:
        return f"{self.program}, {self.precision}, {name_shape(self.shape)}"


def name_shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def collect(rows: Iterable[dict], fresh: bool = False) -> dict[Case, Variants]:
    """By program, precision and shape; calls, or first calls of a process."""
    found: dict[Case, Variants] = {}
    for row in rows:
        if row.get("fresh", False) == fresh:
            case = Case(*(row[key] for key in ("model", "precision", "M", "N", "K")))
            found.setdefault(case, {})[row["variant"]] = row
    return dict(sorted(found.items(), key=_rank))


def _rank(pair: tuple[Case, Variants]) -> tuple:
    case, _ = pair
    return list(PROGRAMS).index(case.program), PRECISIONS.index(case.precision), case.shape


def compare_with_peers(variants: Variants, peers: Iterable[str] = PEERS) -> float | None:
    """The time of the fastest peer over ours; None where one of them is missing."""
    times = [variants[name]["ms"] for name in peers if name in variants]
    return min(times) / variants["ours"]["ms"] if times and "ours" in variants else None


def compare_with(variants: Variants, other: str) -> float | None:
    """Our time over that of another variant."""
    if not {"ours", other} <= variants.keys():
        return None
    return variants["ours"]["ms"] / variants[other]["ms"]
