"""The table: a line for each precision of a model."""

from collections.abc import Sequence

from ..comparison import PRECISIONS


def format_header(variants: Sequence[str]) -> str:
    """`variants` in the order of the rows, ours first."""
    cells = [f"{'precision':10}"]
    cells += [f"{'error ' + name:>14}" for name in variants[:2]]
    cells += [f"{name + ' ms':>10}" for name in variants]
    cells += [f"{name + '/ours':>13}" for name in variants[1:]]
    return " ".join(cells)


def format_line(rows: Sequence[dict]) -> str:
    """One model in one precision: errors of ours and of eager, times, peers' over ours."""
    ours, *peers = rows
    cells = [f"{PRECISIONS[ours['precision']].label:10}"]
    cells += [f"{row['rel_err']:14.2e}" for row in rows[:2]]
    cells += [f"{row['ms']:10.3f}" for row in rows]
    cells += [f"{row['ms'] / ours['ms']:13.2f}" for row in peers]
    return " ".join(cells)
