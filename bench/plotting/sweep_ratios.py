"""What the rows of bench.sweep say: our time against the peers', shape by shape and on average."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..cases.peers import PRODUCT

PEERS = ("eager", "compile", "max_autotune", "cudnn")
SIMPLE_PEERS = ("eager", "compile")
FEW_ROWS = 64  # up to here the product only waits for its weight

Shape = tuple[int, int, int]
# (M, N, K) -> variant -> milliseconds
Times = dict[Shape, dict[str, float]]


def collect_times(rows: Iterable[dict]) -> dict[tuple[str, str], Times]:
    """(model, precision) -> times, in the order of the rows."""
    found = {}
    for row in rows:
        times = found.setdefault((row["model"], row["precision"]), {})
        shape = row["M"], row["N"], row["K"]
        times.setdefault(shape, {})[row["variant"]] = row["ms"]
    return found


def compute_ratios(times: Times, peers: Sequence[str] = PEERS) -> dict[Shape, float]:
    """The fastest of the peers over ours, at every shape with ours and one of them."""
    ratios = {}
    for shape, variants in times.items():
        others = [variants[name] for name in peers if name in variants]
        if others and "ours" in variants:
            ratios[shape] = min(others) / variants["ours"]
    return ratios


class Mean(NamedTuple):
    """The mean of ratios: the more, the faster is ours."""

    mean: float  # geometric
    worst: float
    where: Shape  # the worst
    count: int


def average(ratios: dict[Shape, float]) -> Mean | None:
    if not ratios:
        return None
    where = min(ratios, key=ratios.get)
    mean = statistics.geometric_mean(ratios.values())
    return Mean(mean, ratios[where], where, len(ratios))


class Summary(NamedTuple):
    over_simple_peers: Mean | None
    over_peers: Mean | None
    over_product: Mean | None  # at few rows only


def summarize(times: Times) -> Summary:
    few = {shape: variants for shape, variants in times.items() if shape[0] <= FEW_ROWS}
    return Summary(
        average(compute_ratios(times, SIMPLE_PEERS)),
        average(compute_ratios(times)),
        average(compute_ratios(few, [PRODUCT])),
    )
