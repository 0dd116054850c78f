"""Draws real models as heat maps: the best of PyTorch over the best of ours, by batch."""

import math
import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing
from examples.models import EXAMPLES

from ..numbers import LABELS
from ..sweep import draw_scale, make_colours, write_cell
from .ratios import PASSES, collect_ratios
from .tables import list_kinds

FULLEST = 3.0
TICKS = (0.33, 0.5, 0.7, 1, 1.4, 2, 3)
LINE_HEIGHT, MARGINS = 0.25, 0.8  # inches, of a panel


def draw_end_to_end(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a line of panels for each pass and a panel for each precision: above 1, and blue,
    ours is faster.

    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    ratios = collect_ratios(rows)
    if not ratios:
        raise ValueError("rows: no real model has a way of ours and one of PyTorch")
    kinds = list_kinds(list(ratios))
    modes, precisions = (list(dict.fromkeys(words)) for words in zip(*kinds, strict=True))
    models = [name for name in EXAMPLES if any(case.model == name for case in ratios)]
    batches = sorted({case.m for case in ratios})
    matplotlib = drawing.load_matplotlib()
    most = math.log(FULLEST)
    with matplotlib.rc_context(drawing.STYLE):
        height = (MARGINS + LINE_HEIGHT * len(models)) * len(modes)
        figure = drawing.make_figure(matplotlib, height)
        every = figure.subplots(
            len(modes), len(precisions), squeeze=False, sharey=True, sharex=True
        )
        for line, mode in zip(every, modes, strict=True):
            for axes, precision in zip(line, precisions, strict=True):
                cells = [[math.nan] * len(batches) for _ in models]
                for case, ratio in ratios.items():
                    if (case.mode, case.precision) == (mode, precision):
                        x, y = batches.index(case.m), models.index(case.model)
                        cells[y][x] = math.log(ratio)
                        write_cell(axes, x, y, ratio, FULLEST)
                colours = make_colours(matplotlib)
                image = axes.imshow(cells, cmap=colours, vmin=-most, vmax=most, aspect="auto")
                axes.set_xticks(range(len(batches)), batches)
                axes.set_yticks(range(len(models)), [EXAMPLES[name].title for name in models])
                axes.tick_params(length=0)
                axes.spines[:].set_visible(False)
                label = LABELS[precision].replace("`", "")
                axes.set_title(f"{PASSES[mode]}, {label}", loc="left")
        for axes in every[-1]:
            axes.set_xlabel("rows")
        what = f"Real models, {gpu.upper()}, on the host's clock: time of the fastest of eager "
        what += "PyTorch, torch.compile and torch.compile with CUDA graphs,\nover that of the "
        what += "fastest of ours"
        if len(ratios) < len(kinds) * len(models) * len(batches):
            what += "; grey: not timed"
        figure.suptitle(what, x=0.01, ha="left", fontsize=drawing.STYLE["axes.titlesize"])
        draw_scale(figure, list(every.flat), image, TICKS)
        drawing.save_figure(figure, path)
