"""What the rows of bench.accuracy say of single columns and rows: ours over cuBLAS's errors."""

from collections.abc import Iterable

from ..cases.accuracy_cases import LAYOUTS, PRECISIONS, get_layout
from ..measure.accuracy_errors import compare_lines
from ..measure.results import case_of
from .accuracy import KINDS


def compare_cases(rows: Iterable[dict]) -> list[tuple[dict, float]]:
    """A row of each case that has both, and the larger ratio of the worst column's and row's."""
    cases = {}
    for row in rows:
        cases.setdefault(case_of(row), []).append(row)
    ratios = [(of_case[0], compare_lines(of_case).values()) for of_case in cases.values()]
    return [(row, max(of_case)) for row, of_case in ratios if of_case]


def find_worst_ratios(rows: Iterable[dict]) -> dict[tuple[str, str, str], float]:
    """(model, layout, precision) -> the largest ratio over the shapes."""
    worst = {}
    for row, ratio in compare_cases(rows):
        key = row["model"], get_layout(row), row["precision"]
        worst[key] = max(ratio, worst.get(key, 0.0))
    return worst


def tabulate_worst_ratios(rows: Iterable[dict]) -> tuple[list[str], list[list[str]]]:
    """Titles, and a line for each kind of input with a cell for each layout: a ratio for each
    precision. No line for rows of before there were such errors."""
    worst = find_worst_ratios(rows)
    layouts = [name for name in LAYOUTS if any(name == layout for _, layout, _ in worst)]
    lines = []
    for kind in [name for name in KINDS if any(name == model for model, _, _ in worst)]:
        cells = []
        for layout in layouts:
            found = [worst.get((kind, layout, precision)) for precision in PRECISIONS]
            cells.append(" / ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in found))
        lines.append([KINDS[kind], *cells])
    return ["inputs", *layouts], lines
