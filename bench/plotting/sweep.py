"""Draws the shapes of bench.sweep as a heat map: the fastest peer's time over ours."""

import math
import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing

from .sweep_ratios import Shape, collect_times, compute_ratios

MODEL, PRECISION = "12", "bf16"
# From here on a colour is the fullest, in both directions: 0.97 is to be seen beside 2.
FULLEST = 1.3
TICKS = (0.8, 0.9, 1, 1.1, 1.2, 1.3)
ROW_HEIGHT, MARGINS = 0.3, 1.35  # inches
UNKNOWN = "#DDDDDD"
# Blue is ours in the other pictures too. The red is of the same palette for the colour-blind.
COLOURS = ("#D55E00", "white", drawing.BLUE)


def take_ratios(rows: Iterable[dict]) -> dict[Shape, float]:
    """The ratios of the picture: those of MODEL in PRECISION."""
    return compute_ratios(collect_times(rows).get((MODEL, PRECISION), {}))


def arrange(ratios: dict[Shape, float]) -> tuple[list[int], list[tuple[int, int]]]:
    """M from above, and (N, K) from the left, by the size of the weight."""
    sizes = sorted({shape[0] for shape in ratios})
    features = {shape[1:] for shape in ratios}
    return sizes, sorted(features, key=lambda pair: (math.prod(pair), pair))


def make_colours(matplotlib):
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("ratio", COLOURS)
    return colours.with_extremes(bad=UNKNOWN)


def write_cell(
    axes, column: int, line: int, ratio: float, fullest: float = FULLEST, digits: int = 2
) -> None:
    text = f"{ratio:.{digits}f}"
    # On the red, which is lighter than the blue, black can be read everywhere.
    colour = "white" if ratio > fullest**0.7 else "black"
    weight = "bold" if ratio < 1 and float(text) < 1 else "normal"
    axes.text(column, line, text, ha="center", va="center", color=colour, fontweight=weight)


def draw_scale(figure, axes, image, ticks: Iterable[float] = TICKS) -> None:
    bar = figure.colorbar(image, ax=axes, extend="both", fraction=0.03, pad=0.02)
    bar.set_ticks([math.log(tick) for tick in ticks], labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def draw_sweep(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a cell for each M and N x K: above 1, and blue, ours is faster.

    The peers are eager, torch.compile, its max-autotune and the cuDNN graph, whichever a shape has.
    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    ratios = take_ratios(rows)
    if not ratios:
        raise ValueError(f"rows: no shape of model {MODEL} in {PRECISION} has ours and a peer")
    matplotlib = drawing.load_matplotlib()
    sizes, features = arrange(ratios)
    # The cells are logarithms, so that twice as fast is as far from the middle as half as fast.
    cells = [[math.log(ratios.get((m, *pair), math.nan)) for pair in features] for m in sizes]
    with matplotlib.rc_context(drawing.STYLE):
        figure = drawing.make_figure(matplotlib, MARGINS + ROW_HEIGHT * len(sizes))
        axes = figure.subplots()
        colours = make_colours(matplotlib)
        most = math.log(FULLEST)
        image = axes.imshow(cells, cmap=colours, vmin=-most, vmax=most, aspect="auto")
        for (m, *pair), ratio in ratios.items():
            write_cell(axes, features.index(tuple(pair)), sizes.index(m), ratio)
        axes.set_xticks(range(len(features)), [f"{n}\nx {k}" for n, k in features])
        axes.set_yticks(range(len(sizes)), sizes)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("N x K")
        axes.set_ylabel("M")
        what = f"{drawing.MODELS[MODEL]}, {PRECISION}, {gpu.upper()}, in CUDA graphs"
        how = "time of the fastest of eager, torch.compile, cuDNN and, where timed, max-autotune"
        how += ", over ours"
        axes.set_title(f"{what}\n{how}", loc="left")
        draw_scale(figure, axes, image)
        drawing.save_figure(figure, path)
