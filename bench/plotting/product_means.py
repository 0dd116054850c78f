"""The table of products, from the rows of products.json: cuBLAS's time over ours."""

from collections.abc import Iterable, Sequence

from ..cases.products import NARROW, PRECISIONS
from .model_products import BATCHES, COLUMNS, collect_model_ratios
from .numbers import LABELS
from .products import collect_ratios, find_mean

TITLES = {
    **{column: title.replace("\n", " ") for column, title in COLUMNS.items()},
    BATCHES: "batches",
}
LOST = 0.97  # what is less is slower than cuBLAS, beyond what two runs differ by

Ratios = dict[tuple[str, str], dict[str, float]]


def list_kinds(rows: Sequence[dict], precision: str) -> dict[str, Ratios]:
    """The ratios of the grid and those of models, by column and then by what the shape is called:
    each where there are any."""
    grid = {
        column: {" x ".join(map(str, shape)): ratio for shape, ratio in found.items()}
        for column, found in collect_ratios(rows, precision).items()
    }
    found, shapes = collect_model_ratios(rows, precision)
    models = {
        column: {f"{name} {shapes[name]}": ratio for name, ratio in ratios.items()}
        for column, ratios in found.items()
    }
    return {name: each for name, each in (("grid", grid), ("models", models)) if each}


def list_ratios(rows: Iterable[dict]) -> dict[tuple[str, str, str], float]:
    """(precision, column, shape) -> ratio."""
    rows = list(rows)
    return {
        # Nothing of 16 bits is kept.
        (precision, title.removesuffix(", new") if precision in NARROW else title, shape): ratio
        for precision in (*PRECISIONS, *NARROW)
        for each in list_kinds(rows, precision).values()
        for column, title in TITLES.items()
        for shape, ratio in each.get(column, {}).items()
    }


def tabulate_means(rows: Iterable[dict]) -> tuple[list[str], list[list[str]]]:
    """Titles, and a line for each precision and kind of shape, without columns that are empty."""
    rows = list(rows)
    lines, used = [], set()
    for precision in (*PRECISIONS, *NARROW):
        for kind, each in list_kinds(rows, precision).items():
            count = max(len(found) for found in each.values())
            cells = {column: write_mean(each.get(column, {}).values()) for column in TITLES}
            used |= {column for column, cell in cells.items() if cell}
            lines.append(([LABELS[precision], f"{count}, {kind}"], cells))
    columns = [column for column in TITLES if column in used]
    titles = ["precision", "shapes", *(TITLES[column] for column in columns)]
    return titles, [[*head, *(cells[column] for column in columns)] for head, cells in lines]


def write_mean(ratios: Iterable[float]) -> str:
    """The geometric mean and the least."""
    ratios = list(ratios)
    return f"**{find_mean(ratios):.2f}** ({min(ratios):.2f})" if ratios else ""
