"""Draws the products of bench.products as heat maps: cuBLAS's time over ours."""

import math
import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing

from .sweep import arrange, draw_scale, make_colours, write_cell

CUBLAS = "cublas"
PRECISION = "ieee"
# (layout, weight), and what the panel is called.
PANELS = {
    ("fwd", "kept"): "forward, the weight's parts are kept",
    ("fwd", "new"): "forward, the weight is new",
    ("dgrad", "kept"): "gradient of x, the weight's parts are kept",
    ("dgrad", "new"): "gradient of x, the weight is new",
    ("wgrad", "new"): "gradient of the weight",
}
FULLEST = 4.0
TICKS = (0.25, 0.5, 1, 2, 4)
ROW_HEIGHT, MARGINS = 0.3, 0.85  # inches, of a panel

Shape = tuple[int, int, int]


def collect_ratios(
    rows: Iterable[dict], precision: str = PRECISION
) -> dict[tuple[str, str], dict[Shape, float]]:
    """By layout and weight, of a precision and the grid, where both variants were timed."""
    times: dict[tuple, dict[str, float]] = {}
    for row in rows:
        if row["precision"] == precision and "source" not in row:
            shape = row["M"], row["N"], row["K"]
            key = row["layout"], row["weight"], shape
            times.setdefault(key, {})[row["variant"]] = row["ms"]
    ratios: dict[tuple[str, str], dict[Shape, float]] = {}
    for (layout, weight, shape), variants in times.items():
        if variants.keys() >= {"ours", CUBLAS}:
            ratio = variants[CUBLAS] / variants["ours"]
            ratios.setdefault((layout, weight), {})[shape] = ratio
    return ratios


def find_mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def draw_products(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a panel for each layout: above 1, and blue, ours is faster.

    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    ratios = collect_ratios(rows)
    panels = [panel for panel in PANELS if panel in ratios]
    if not panels:
        raise ValueError(f"rows: no product in {PRECISION} has ours and cuBLAS's")
    matplotlib = drawing.load_matplotlib()
    most = math.log(FULLEST)
    with matplotlib.rc_context(drawing.STYLE):
        lines = sum(len(arrange(ratios[panel])[0]) for panel in panels)
        figure = drawing.make_figure(matplotlib, MARGINS * len(panels) + ROW_HEIGHT * lines)
        every = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, panel in zip(every, panels, strict=True):
            sizes, features = arrange(ratios[panel])
            cells = [
                [math.log(ratios[panel].get((m, *pair), math.nan)) for pair in features]
                for m in sizes
            ]
            image = axes.imshow(
                cells, cmap=make_colours(matplotlib), vmin=-most, vmax=most, aspect="auto"
            )
            for (m, *pair), ratio in ratios[panel].items():
                write_cell(axes, features.index(tuple(pair)), sizes.index(m), ratio, FULLEST)
            axes.set_xticks(range(len(features)), [f"{n}\nx {k}" for n, k in features])
            axes.set_yticks(range(len(sizes)), sizes)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_ylabel("M")
            mean = find_mean(ratios[panel].values())
            axes.set_title(f"{PANELS[panel]}: {mean:.2f} in the geometric mean", loc="left")
        every[-1].set_xlabel("N x K")
        what = f"fp32 products, {gpu.upper()}, in CUDA graphs: time of cuBLAS in fp32 over ours"
        figure.suptitle(what, x=0.01, ha="left")
        draw_scale(figure, list(every), image, TICKS)
        drawing.save_figure(figure, path)
