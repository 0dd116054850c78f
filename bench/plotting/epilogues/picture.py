"""Draws epilogues as bars: the fastest peer's time over ours."""

import pathlib
from collections.abc import Iterable

from cutlass_fused.comparison import drawing

from ...epilogues.programs import PROGRAMS
from ..numbers import LABELS
from .ratios import Case, Variants, collect, compare_with_peers, name_shape
from .tables import COLUMNS

SLOWER = "#D55E00"  # as in the picture of bench.sweep
LINE_HEIGHT, MARGINS = 0.21, 0.95  # inches

Panel = dict[str, Variants]  # by program


def collect_panels(rows: Iterable[dict]) -> dict[tuple[str, tuple[int, int, int]], Panel]:
    """By precision and shape, the programs with ours and a peer. fp16 is like bf16."""
    found, panels = collect(rows), {}
    for precision, shape in COLUMNS:
        panel = {name: found.get(Case(name, precision, *shape), {}) for name in PROGRAMS}
        panel = {name: each for name, each in panel.items() if compare_with_peers(each)}
        if panel and precision != "fp16":
            panels[precision, shape] = panel
    return panels


def draw_epilogues(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a panel for each precision and shape, a bar for each program: it begins at 1, and
    goes to the right where ours is faster. A line is where a product that nothing follows would be.

    Raises ValueError without such rows, and ImportError without matplotlib.
    """
    panels = collect_panels(rows)
    if not panels:
        raise ValueError("rows: no program at a large shape has ours and a peer")
    names = [name for name in PROGRAMS if any(name in panel for panel in panels.values())]
    matplotlib = drawing.load_matplotlib()
    with matplotlib.rc_context(drawing.STYLE):
        figure = drawing.make_figure(matplotlib, MARGINS + LINE_HEIGHT * len(names))
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, ((precision, shape), panel) in zip(every, panels.items(), strict=True):
            _draw_panel(axes, panel, names)
            title = LABELS[precision].replace("`", "")
            axes.set_title(f"{title}\n{name_shape(shape)}", loc="left")
        every[0].set_yticks(range(len(names)), [PROGRAMS[name].label for name in names])
        every[0].invert_yaxis()
        what = f"Products with epilogues, {gpu.upper()}: time of the fastest of eager PyTorch, "
        what += "torch.compile and, where timed, max-autotune, over ours;\n"
        what += "the line is the same of our product with no epilogue"
        figure.suptitle(what, x=0.01, ha="left", fontsize=drawing.STYLE["axes.titlesize"])
        drawing.save_figure(figure, path)


def _draw_panel(axes, panel: Panel, names: list[str]) -> None:
    ends = [1.0]
    for name, variants in panel.items():
        place, ratio = names.index(name), compare_with_peers(variants)
        colour = drawing.BLUE if ratio >= 1 else SLOWER
        axes.barh(place, ratio - 1, 0.7, 1, color=colour, zorder=2)
        ends.append(ratio)
        if "identity" in variants:
            best = ratio * variants["ours"]["ms"] / variants["identity"]["ms"]
            axes.vlines(best, place - 0.4, place + 0.4, color="black", linewidth=1.1, zorder=3)
            ends.append(best)
        axes.annotate(
            f"{ratio:.2f}",
            (max(ends[-1], ratio, 1.0), place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold" if ratio < 1 else "normal",
        )
    low, high = min(ends), max(ends)
    room = high - low
    axes.set_xlim(low - 0.05 * room, high + 0.35 * room)
    axes.axvline(1, color=drawing.GREY, linewidth=0.8, zorder=1)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
