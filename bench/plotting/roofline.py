"""Draws a roofline: TFLOP/s over FLOP per byte, under what the GPU can do at best."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from cutlass_fused.comparison import drawing

from .roofs import ROOFS, Point, Roofs

COLOURS = {"ieee": drawing.BLUE, "tf32": drawing.ORANGE, "bf16": drawing.GREEN}
MARKERS = {"12": "o", "33": "s", "39": "^", "84": "D", "softmax": "v", "batch_norm": "P"}
LABELS = {**drawing.MODELS, "softmax": "softmax", "batch_norm": "batch norm, training"}
SIZE = 5  # points
LINE = {"color": "black", "linewidth": 1.1, "zorder": 2}
HEIGHT = 4.4  # inches


class Panel(NamedTuple):
    title: str
    points: Sequence[Point]
    # The peers' points would lie on ours: they are drawn at so many times their intensity.
    shift: float
    margin: float  # by which factor the axis goes beyond the points
    with_compute: bool  # with the roofs of the compute units


def draw_points(axes, panel: Panel) -> None:
    for point in panel.points:
        colour = COLOURS[point.precision]
        axes.plot(
            point.intensity * (1 if point.ours else panel.shift),
            point.tflops,
            MARKERS[point.model],
            markersize=SIZE,
            markeredgecolor=colour,
            markerfacecolor=colour if point.ours else "none",
            zorder=3,
        )
    axes.set_title(panel.title, loc="left")


def set_limits(axes, panel: Panel, roofs: Roofs | None) -> None:
    """Around the points and, where they are known, the roofs."""
    intensities = [point.intensity for point in panel.points]
    rates = [point.tflops for point in panel.points]
    left, right = min(intensities) / panel.margin, max(intensities) * panel.margin * panel.shift
    top = max(rates)
    if roofs is not None and panel.with_compute:
        best = max(rate for rate, _ in roofs.compute.values())
        left, top = min(left, 0.4 * best / roofs.bandwidth[0]), max(top, best)
    elif roofs is not None:
        top = max(top, max(intensities) * roofs.bandwidth[0])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(rates) / 1.4, 1.3 * top)


def set_ticks(matplotlib, axes) -> None:
    """Plain numbers at 1, 2, 5."""
    ticker = matplotlib.ticker
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=20))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(ticker.NullLocator())
    axes.grid(color="#EEEEEE", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def draw_roofs(axes, roofs: Roofs, with_compute: bool) -> None:
    left, right = axes.get_xlim()
    bandwidth = roofs.bandwidth[0]
    ridge = min(right, max(rate for rate, _ in roofs.compute.values()) / bandwidth)
    axes.plot([left, ridge], [left * bandwidth, ridge * bandwidth], **LINE)
    if not with_compute:
        return
    for name, (rate, source) in roofs.compute.items():
        axes.plot([max(left, rate / bandwidth), right], [rate, rate], **LINE)
        # Beside the axes, where no point can be.
        place = axes.get_yaxis_transform()
        text = f"{rate:g}: {name}\n({source})"
        axes.annotate(text, (1.015, rate), xycoords=place, va="center", fontsize=8)


def make_legend(matplotlib, points: Sequence[Point], roofs: Roofs | None) -> list:
    line = matplotlib.lines.Line2D
    known = {name for point in points for name in (point.model, point.precision)}
    handles = [
        matplotlib.patches.Patch(color=colour, label=drawing.PRECISIONS[name])
        for name, colour in COLOURS.items()
        if name in known
    ]
    grey = {"color": drawing.GREY, "linestyle": "none", "markersize": SIZE}
    handles += [
        line([], [], marker=marker, label=LABELS[name], **grey)
        for name, marker in MARKERS.items()
        if name in known
    ]
    if roofs is not None:
        bandwidth, source = roofs.bandwidth
        handles.append(line([], [], **LINE, label=f"{bandwidth:g} TB/s ({source})"))
    return handles


def draw_panel(matplotlib, axes, panel: Panel, roofs: Roofs | None) -> None:
    draw_points(axes, panel)
    set_limits(axes, panel, roofs)
    if roofs is not None:
        draw_roofs(axes, roofs, panel.with_compute)
    set_ticks(matplotlib, axes)


def draw_roofline(
    models: Sequence[Point], layers: Sequence[Point], gpu: str, path: str | pathlib.Path
) -> None:
    """A PNG with a panel for the memory-bound layers and one for the models, whichever there are.

    The roofs are those of `gpu` in roofs.ROOFS; no roof is drawn of another GPU. Raises ValueError
    without points, and ImportError without matplotlib.
    """
    panels = [
        Panel("memory-bound layers", layers, shift=1.03, margin=1.25, with_compute=False),
        Panel("models, by their product", models, shift=1.09, margin=1.5, with_compute=True),
    ]
    panels = [panel for panel in panels if panel.points]
    if not panels:
        raise ValueError("there is nothing to draw")
    matplotlib = drawing.load_matplotlib()
    roofs = ROOFS.get(gpu)
    with matplotlib.rc_context(drawing.STYLE):
        figure = drawing.make_figure(matplotlib, HEIGHT)
        all_axes = figure.subplots(1, len(panels), squeeze=False).ravel()
        for axes, panel in zip(all_axes, panels, strict=True):
            draw_panel(matplotlib, axes, panel, roofs)
        all_axes[0].set_ylabel("TFLOP/s (filled: ours; hollow: fastest peer)")
        text = "FLOP per byte that must move (hollow points stand a little to the right of it)"
        figure.supxlabel(text, fontsize=drawing.STYLE["font.size"])
        handles = make_legend(matplotlib, [*models, *layers], roofs)
        figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False)
        drawing.save_figure(figure, path)
