"""What the rows of bench.end_to_end say: the best of ours beside the best of PyTorch's."""

from collections.abc import Iterable
from typing import NamedTuple

from examples.models import EXAMPLES

from ...measure.results import MODES, PRECISIONS
from ..products import find_mean

OURS = ("ours", "ours_compile", "ours_compile_graphs", "ours_graphs")
PEERS = ("eager", "compile", "compile_graphs")
CLOCKS = {"wall_ms": "the host's clock", "ms": "the GPU's time"}
PASSES = {"eval": "inference", "train": "training step"}
# Up to here, and from here on, geometric means are taken.
FEW_ROWS, MANY_ROWS = 256, 4096
LOST = 0.98  # what is less is slower than PyTorch, beyond what two runs differ by

Variants = dict[str, dict]  # the rows of a case


class Case(NamedTuple):
    model: str
    mode: str
    precision: str
    m: int

    def __str__(self) -> str:
        return f"{EXAMPLES[self.model].title}, {self.m} rows"


class Mean(NamedTuple):
    mean: float
    worst: float
    where: Case


def group(rows: Iterable[dict], kind: type[Case] = Case) -> dict[Case, Variants]:
    """The rows of each case by their variants."""
    found: dict[Case, Variants] = {}
    for row in rows:
        case = kind(*(row[key] for key in ("model", "mode", "precision", "M")))
        found.setdefault(case, {})[row["variant"]] = row
    return found


def collect(rows: Iterable[dict]) -> dict[Case, Variants]:
    """In the order of the suite."""
    return dict(sorted(group(rows).items(), key=_rank))


def _rank(pair: tuple[Case, Variants]) -> tuple:
    case, _ = pair
    order = MODES.index(case.mode), PRECISIONS.index(case.precision)
    return *order, list(EXAMPLES).index(case.model), case.m


def take_best(variants: Variants, names: Iterable[str], clock: str) -> float | None:
    return min((variants[name][clock] for name in names if name in variants), default=None)


def compare(variants: Variants, clock: str) -> float | None:
    """The time of the fastest way of PyTorch over that of ours; None where one is missing."""
    ours, peers = (take_best(variants, names, clock) for names in (OURS, PEERS))
    return None if ours is None or peers is None else peers / ours


def collect_ratios(rows: Iterable[dict], clock: str = "wall_ms") -> dict[Case, float]:
    ratios = {case: compare(variants, clock) for case, variants in collect(rows).items()}
    return {case: ratio for case, ratio in ratios.items() if ratio is not None}


def summarize(ratios: dict[Case, float], mode: str, precision: str, many: bool) -> Mean | None:
    """Over the models and the batches of few rows, or of many."""
    found = {
        case: ratio
        for case, ratio in ratios.items()
        if (case.mode, case.precision) == (mode, precision)
        and (case.m >= MANY_ROWS if many else case.m <= FEW_ROWS)
    }
    if not found:
        return None
    worst = min(found, key=found.get)
    return Mean(find_mean(found.values()), found[worst], worst)


def list_lost(rows: Iterable[dict]) -> list[str]:
    """Each case in which PyTorch is faster by more than the noise."""
    return [
        f"{case}, {PASSES[case.mode]}, {case.precision}: {ratio:.3f}"
        for case, ratio in collect_ratios(rows).items()
        if ratio < LOST
    ]
