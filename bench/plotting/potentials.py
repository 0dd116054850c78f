"""Draws the steps of potentials as heat maps: eager PyTorch's time over ours."""

import math
import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing

from .numbers import LABELS
from .sweep import draw_scale, make_colours, write_cell
from .training import CLOCKS, collect_potentials, name_step

CLOCK_NAMES = dict(zip(CLOCKS, ("the GPU's time", "the host's clock"), strict=True))
FULLEST = 2.0
TICKS = (0.5, 0.7, 1, 1.4, 2)
LINE_HEIGHT, MARGINS = 0.25, 0.9  # inches, of a panel


def draw_potentials(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with two panels for each precision: above 1, and blue, ours is faster.

    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    rows = list(rows)
    ratios = {clock: collect_potentials(rows, clock) for clock in CLOCKS}
    precisions = list(ratios["ms"])
    if not precisions:
        raise ValueError("rows: no step of a potential has ours and eager PyTorch's")
    cases = list(dict.fromkeys(case for each in ratios["ms"].values() for case in each))
    models = list(dict.fromkeys(model for model, *_ in cases))
    widths = sorted({k for *_, k in cases})
    matplotlib = drawing.load_matplotlib()
    most = math.log(FULLEST)
    with matplotlib.rc_context(drawing.STYLE):
        height = (MARGINS + LINE_HEIGHT * len(models)) * len(precisions)
        figure = drawing.make_figure(matplotlib, height)
        every = figure.subplots(len(precisions), len(CLOCKS), squeeze=False, sharey=True)
        for line, precision in zip(every, precisions, strict=True):
            for axes, clock in zip(line, CLOCKS, strict=True):
                cells = [[math.nan] * len(widths) for _ in models]
                for (model, *_, width), ratio in ratios[clock][precision].items():
                    x, y = widths.index(width), models.index(model)
                    cells[y][x] = math.log(ratio)
                    write_cell(axes, x, y, ratio, FULLEST)
                image = axes.imshow(
                    cells, cmap=make_colours(matplotlib), vmin=-most, vmax=most, aspect="auto"
                )
                axes.set_xticks(range(len(widths)), widths)
                axes.set_yticks(range(len(models)), map(name_step, models))
                axes.tick_params(length=0)
                axes.spines[:].set_visible(False)
                name = LABELS[precision].replace("`", "")
                axes.set_title(f"{name}, {CLOCK_NAMES[clock]}", loc="left")
        for axes in every[-1]:
            axes.set_xlabel("width of the layers")
        rows_of = sorted({m for _, m, *_ in cases})
        what = f"Steps of potentials of {' or '.join(map(str, rows_of))} atoms, {gpu.upper()}"
        what += ": time of eager PyTorch over ours"
        if any(len(found) < len(cases) for found in ratios["ms"].values()):
            what += "; grey: not timed"
        figure.suptitle(what, x=0.01, ha="left")
        draw_scale(figure, list(every.flat), image, TICKS)
        drawing.save_figure(figure, path)
