"""The tables of bench.accuracy: errors and times of one product, and how the errors of single
columns and rows compare to cuBLAS's."""

from collections.abc import Iterable, Sequence

from ..cases.accuracy_cases import LAYOUTS, PRECISIONS, get_layout
from ..measure.accuracy_errors import compare_lines
from ..measure.results import case_of
from .accuracy import KINDS, LOOKS, get_key
from .numbers import format_error, format_time

# The table of errors has the times of these inputs.
TIMED_KIND = "randn"


def tabulate_errors(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Titles, and a line for each kind of input; the last has the times of one kind. The rows are
    of one shape."""
    found = {(row["model"], *get_key(row)): row for row in rows}
    looks = [key for key in LOOKS if any(key == get_key(row) for row in rows)]
    kinds = [kind for kind in KINDS if any(kind == row["model"] for row in rows)]
    lines = []
    for kind in kinds:
        cells = [found.get((kind, *key)) for key in looks]
        errors = [format_error(row["rel_err"]) if row else "" for row in cells]
        lines.append([KINDS[kind], *errors])
    timed = TIMED_KIND if TIMED_KIND in kinds else kinds[0]
    cells = [found.get((timed, *key)) for key in looks]
    times = [format_time(row["ms"]) if row else "" for row in cells]
    lines.append([f"milliseconds, {KINDS[timed]}", *times])
    return ["inputs", *(LOOKS[key].label for key in looks)], lines


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
