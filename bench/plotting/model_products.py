"""Draws the products of real models' layers as heat maps: cuBLAS's time over ours."""

import math
import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing

from .products import CUBLAS, FULLEST, PRECISION, TICKS, find_mean
from .sweep import draw_scale, make_colours, write_cell

COLUMNS = {
    ("fwd", "kept"): "forward,\nkept",
    ("fwd", "new"): "forward,\nnew",
    ("dgrad", "kept"): "gradient\nof x, kept",
    ("dgrad", "new"): "gradient\nof x, new",
    ("wgrad", "new"): "gradient\nof the weight",
}
BATCHES = "bmm", "new"
LINE_HEIGHT, MARGINS = 0.19, 1.6  # inches

Ratios = dict[tuple[str, str], dict[str, float]]


def collect_model_ratios(
    rows: Iterable[dict], precision: str = PRECISION
) -> tuple[Ratios, dict[str, str]]:
    """By layout and weight, then by layer, of a precision, where both variants were timed; and the
    shape of each layer."""
    times: dict[tuple, dict[str, float]] = {}
    shapes = {}
    for row in rows:
        column = row["layout"], row["weight"]
        is_drawn = column in COLUMNS or column == BATCHES
        if row["precision"] != precision or "source" not in row or not is_drawn:
            continue
        key = column, row["source"]
        times.setdefault(key, {})[row["variant"]] = row["ms"]
        batch = f"{row['batch']} x " if "batch" in row else ""
        shapes[row["source"]] = f"{batch}{row['M']} x {row['N']} x {row['K']}"
    ratios: Ratios = {}
    for (column, source), variants in times.items():
        if variants.keys() >= {"ours", CUBLAS}:
            ratios.setdefault(column, {})[source] = variants[CUBLAS] / variants["ours"]
    return ratios, shapes


def draw_model_products(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a line for each layer: above 1, and blue, ours is faster.

    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    ratios, shapes = collect_model_ratios(rows)
    linears = sorted({layer for column in COLUMNS for layer in ratios.get(column, {})})
    batches = sorted(ratios.get(BATCHES, {}))
    if not linears and not batches:
        raise ValueError(f"rows: no layer of a model in {PRECISION} has ours and cuBLAS's")
    panels = [
        (layers, columns)
        for layers, columns in (
            (linears, COLUMNS),
            (batches, {BATCHES: "batches"}),
        )
        if layers
    ]
    matplotlib = drawing.load_matplotlib()
    most = math.log(FULLEST)
    with matplotlib.rc_context(drawing.STYLE):
        lines = sum(len(layers) for layers, _ in panels)
        figure = drawing.make_figure(matplotlib, MARGINS + LINE_HEIGHT * lines)
        heights = [len(layers) for layers, _ in panels]
        every = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for axes, (layers, columns) in zip(every, panels, strict=True):
            cells = [
                [math.log(ratios.get(column, {}).get(layer, math.nan)) for column in columns]
                for layer in layers
            ]
            image = axes.imshow(
                cells, cmap=make_colours(matplotlib), vmin=-most, vmax=most, aspect="auto"
            )
            for at, column in enumerate(columns):
                for line, layer in enumerate(layers):
                    if layer in ratios.get(column, {}):
                        write_cell(axes, at, line, ratios[column][layer], FULLEST)
            means = [find_mean(ratios[column].values()) for column in columns]
            labels = [
                f"{name}\n{mean:.2f}" for name, mean in zip(columns.values(), means, strict=True)
            ]
            axes.set_xticks(range(len(columns)), labels)
            axes.set_yticks(range(len(layers)), [f"{layer}  {shapes[layer]}" for layer in layers])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        what = f"fp32 products of models' layers, {gpu.upper()}: time of cuBLAS in fp32 over ours"
        figure.suptitle(what, x=0.01, ha="left")
        draw_scale(figure, list(every), image, TICKS)
        drawing.save_figure(figure, path)
