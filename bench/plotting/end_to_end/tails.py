"""The table of bench.tails, and where our side of it is slower."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...measure.results import MODES, PRECISIONS
from ..numbers import LABELS
from ..products import find_mean
from .ratios import LOST, PASSES, Variants, group, take_best
from .ratios import Case as RealCase

TAILS = (
    "small models of a linear layer with a tail, each kind once. How many times as long as the "
    "model behind `fuse` PyTorch takes: the better of its eager mode and torch.compile, by the "
    "GPU's time; its eager mode, on the host's clock from an idle GPU until the call is done; "
    "torch.compile with CUDA graphs over ours in one that the caller captured, by the GPU's time. "
    "Geometric means over all models and rows; in brackets stands the least, and whose it is."
)


class Comparison(NamedTuple):
    title: str
    clock: str
    peers: tuple[str, ...]  # of which the fastest counts
    ours: str


GPU = Comparison("the GPU's time", "ms", ("eager", "compile"), "ours")
HOST = Comparison("the host's clock, eager", "wall_ms", ("eager",), "ours")
GRAPHS = Comparison("CUDA graphs, the GPU's time", "ms", ("compile_graphs",), "ours_graphs")
COMPARISONS = (GPU, HOST, GRAPHS)


class Case(RealCase):
    def __str__(self) -> str:
        return f'"{self.model}", {self.m} rows'


def collect(rows: Iterable[dict]) -> dict[Case, Variants]:
    """Inference first, by precision, model and rows."""
    return dict(sorted(group(rows, Case).items(), key=_rank))


def _rank(pair: tuple[Case, Variants]) -> tuple:
    case, _ = pair
    return -MODES.index(case.mode), PRECISIONS.index(case.precision), case.model, case.m


def compare(variants: Variants, comparison: Comparison) -> float | None:
    """PyTorch's time over ours; None where one of them is missing."""
    _, clock, peers, own = comparison
    ours, best = take_best(variants, [own], clock), take_best(variants, peers, clock)
    return None if ours is None or best is None else best / ours


def collect_ratios(rows: Iterable[dict], comparison: Comparison) -> dict[Case, float]:
    ratios = {case: compare(variants, comparison) for case, variants in collect(rows).items()}
    return {case: ratio for case, ratio in ratios.items() if ratio is not None}


def tabulate_tails(rows: Sequence[dict]) -> tuple[str, list[str], list[list[str]]]:
    """What the table says, and a line for each pass and precision."""
    ratios = [collect_ratios(rows, comparison) for comparison in COMPARISONS]
    kinds: dict[tuple[str, str], set[str]] = {}
    for case in collect(rows):
        kinds.setdefault((case.mode, case.precision), set()).add(case.model)
    lines = []
    for kind, models in kinds.items():
        cells = [summarize({c: r for c, r in each.items() if c[1:3] == kind}) for each in ratios]
        mode, precision = kind
        lines.append([f"{PASSES[mode]}, {LABELS[precision]}", str(len(models)), *cells])
    return TAILS, ["", "models", *(comparison.title for comparison in COMPARISONS)], lines


def summarize(ratios: dict[Case, float]) -> str:
    """The mean, the least, and whose it is."""
    if not ratios:
        return ""
    worst = min(ratios, key=ratios.get)
    return f"**{find_mean(ratios.values()):.2f}** (least {ratios[worst]:.2f}: {worst})"


def list_lost(rows: Sequence[dict]) -> list[str]:
    """Each case in which PyTorch takes less of the GPU's time than ours, beyond what two runs
    differ by: outside of graphs and in them, the slowest of ours first."""
    found = [
        (ratio, f"{case}, {PASSES[case.mode]}, {case.precision}, {comparison.title}: {ratio:.3f}")
        for comparison in (GPU, GRAPHS)
        for case, ratio in collect_ratios(rows, comparison).items()
        if ratio < LOST
    ]
    return [text for _, text in sorted(found)]
