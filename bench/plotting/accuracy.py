"""Draws the errors of bench.accuracy: over time at one K, over K, and of gradients over M."""

import collections
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cutlass_fused.comparison import drawing

from ..cases.accuracy_cases import get_layout
from ..measure.results import EXTRA_MODELS
from .roofline import COLOURS, SIZE


class Look(NamedTuple):
    label: str
    colour: str
    marker: str
    ours: bool  # filled, and the peers hollow


# (variant, precision), in the order of the legend. As in the roofline a colour is a precision.
LOOKS = {
    ("ours", "ieee"): Look('ours, "ieee"', COLOURS["ieee"], "o", True),
    ("eager", "ieee"): Look("cuBLAS, fp32", COLOURS["ieee"], "s", False),
    ("bf16x3", "ieee"): Look("cuBLAS, three bf16 products", COLOURS["bf16"], "^", False),
    ("ours", "tf32"): Look('ours, "tf32"', COLOURS["tf32"], "o", True),
    ("eager", "tf32"): Look("cuBLAS, TF32", COLOURS["tf32"], "s", False),
}
KINDS = {
    name: name.replace("lognormal_", "log-normal, σ = ").replace("ill_", "ill-").replace("_", " ")
    for name in EXTRA_MODELS["accuracy"]
}
TIMED_K = 8192
# Gradients of a weight are drawn of these.
GRADIENT_KINDS = ("randn", "ill_conditioned", "scaled_outputs", "scaled_terms", "scaled_both")
COLUMNS = 5
PANEL_HEIGHT, MARGINS, TITLE_HEIGHT = 1.55, 0.3, 0.5  # inches
# The axes go beyond the points by this part of their length.
MARGIN = 0.12
# 1, 128, 16384; 4096, 16384, 65536
BASES = {"K": 128, "M": 4}

Points = dict[str, dict[tuple[str, str], list[tuple[float, float]]]]


# The sizes that the points of a block share, by what is along its horizontal axis.
SHARED_SIZES = {"ms": "MNK", "K": "MN", "M": "NK"}


class Block(NamedTuple):
    """Panels with the same axes, one for each kind of input."""

    rows: Sequence[dict]
    x: str  # the key of a row
    y: str
    title: str  # before the shape
    x_label: str
    y_label: str

    @property
    def points(self) -> Points:
        """Kind -> variant and precision -> (x, y), by x, without errors of 0, which a logarithmic
        axis cannot show."""
        points = {kind: {key: [] for key in LOOKS} for kind in KINDS}
        for row in self.rows:
            if row.get(self.y, 0) > 0:
                points[row["model"]][get_key(row)].append((row[self.x], row[self.y]))
        found = {
            kind: {key: sorted(pairs) for key, pairs in of_kind.items() if pairs}
            for kind, of_kind in points.items()
        }
        return {kind: of_kind for kind, of_kind in found.items() if of_kind}

    @property
    def lines(self) -> int:
        return math.ceil(len(self.points) / COLUMNS)


def get_key(row: dict) -> tuple[str, str]:
    return row["variant"], row["precision"]


def take_layout(rows: Iterable[dict], layout: str) -> list[dict]:
    return [row for row in rows if get_layout(row) == layout]


def take_timed(rows: Iterable[dict]) -> list[dict]:
    """Forward products with K = 8192, of the largest M x N."""
    rows = [row for row in take_layout(rows, "fwd") if row["K"] == TIMED_K]
    shape = max(((row["M"] * row["N"], row["M"]) for row in rows), default=None)
    return [row for row in rows if (row["M"] * row["N"], row["M"]) == shape]


def take_sums(rows: Iterable[dict]) -> list[dict]:
    """Forward products of the M x N that has the most sizes of K; none where each has one."""
    rows, sizes = take_layout(rows, "fwd"), collections.defaultdict(set)
    for row in rows:
        sizes[row["M"], row["N"]].add(row["K"])
    shape = max(sizes, key=lambda pair: len(sizes[pair]), default=None)
    if shape is None or len(sizes[shape]) == 1:
        return []
    return [row for row in rows if (row["M"], row["N"]) == shape]


def take_gradients(rows: Iterable[dict]) -> list[dict]:
    """Gradients of the largest weight, the longest of which has the most rows."""
    rows = [row for row in take_layout(rows, "wgrad") if row["model"] in GRADIENT_KINDS]
    shape = max(((row["N"] * row["K"], row["N"]) for row in rows), default=None)
    return [row for row in rows if (row["N"] * row["K"], row["N"]) == shape]


def list_blocks(rows: Iterable[dict]) -> list[Block]:
    """What there is to draw."""
    rows = [row for row in rows if row["model"] in KINDS and get_key(row) in LOOKS]
    timed = Block(
        take_timed(rows),
        *("ms", "rel_err"),
        "Error over time (down and to the left is better)",
        "milliseconds, logarithmic",
        "relative L2 error",
    )
    sums = Block(
        take_sums(rows),
        *("K", "err_componentwise"),
        "Error over K",
        "K, logarithmic",
        "largest error over |x| @ |weight|.T",
    )
    gradients = Block(
        take_gradients(rows),
        *("M", "err_column"),
        "Error of the worst column over M, gradient of a weight",
        "M, logarithmic",
        "relative L2 error",
    )
    return [block for block in (timed, sums, gradients) if block.points]


def draw_kind(axes, kind: str, points: dict[tuple[str, str], list], with_lines: bool) -> None:
    for key, pairs in points.items():
        _, colour, marker, ours = LOOKS[key]
        axes.plot(
            *zip(*pairs, strict=True),
            color=colour,
            # Two lines at one place are both seen.
            linestyle=("-" if ours else (0, (3, 2))) if with_lines else "none",
            linewidth=1,
            marker=marker,
            markersize=SIZE - 2 if with_lines and ours else SIZE,
            markerfacecolor=colour if ours else "white",
            zorder=4 if ours else 3,
        )
    axes.set_title(KINDS[kind], loc="left")


def set_scales(matplotlib, axes, x: str) -> None:
    ticker = matplotlib.ticker
    axes.set(xscale="log", yscale="log")
    steps = {"base": BASES[x]} if x in BASES else {"subs": (1, 3)}
    axes.xaxis.set_major_locator(ticker.LogLocator(numticks=20, **steps))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_locator(ticker.LogLocator(numticks=6))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(ticker.NullLocator())


def draw_block(matplotlib, figure, block: Block) -> None:
    points, size = block.points, drawing.STYLE["font.size"]
    columns = min(COLUMNS, len(points))
    every = figure.subplots(block.lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (kind, of_kind) in zip(every, points.items(), strict=False):
        draw_kind(axes, kind, of_kind, with_lines=block.x in BASES)
        axes.margins(MARGIN)
        axes.grid(color="#EEEEEE", linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)
    set_scales(matplotlib, every[0], block.x)  # which all share
    for index, axes in enumerate(every[len(points) :], len(points)):
        axes.set_visible(False)
        every[index - columns].tick_params(labelbottom=True)
    shape = ", ".join(f"{name}={block.rows[0][name]}" for name in SHARED_SIZES[block.x])
    figure.suptitle(f"{block.title}, {shape}", x=0.01, ha="left", fontsize=size + 1)
    figure.supxlabel(block.x_label, fontsize=size)
    figure.supylabel(block.y_label, fontsize=size)


def make_legend(matplotlib, blocks: Sequence[Block]) -> list:
    known = {get_key(row) for block in blocks for row in block.rows}
    return [
        matplotlib.lines.Line2D(
            *([], []),
            color=look.colour,
            linestyle="none",
            marker=look.marker,
            markersize=SIZE,
            markerfacecolor=look.colour if look.ours else "white",
            label=look.label,
        )
        for key, look in LOOKS.items()
        if key in known
    ]


def draw_accuracy(rows: Iterable[dict], gpu: str, path: str | pathlib.Path) -> None:
    """A PNG with a panel for each kind of input: its errors over time at K = 8192, over K, and in
    gradients of weights.

    Raises ValueError where there is nothing to draw, and ImportError without matplotlib.
    """
    blocks = list_blocks(rows)
    if not blocks:
        raise ValueError(f"rows: neither a product with K = {TIMED_K} nor one M x N with several K")
    matplotlib = drawing.load_matplotlib()
    heights = [MARGINS + TITLE_HEIGHT + PANEL_HEIGHT * block.lines for block in blocks]
    with matplotlib.rc_context(drawing.STYLE):
        figure = drawing.make_figure(matplotlib, MARGINS + sum(heights))
        parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights).ravel()
        for part, block in zip(parts, blocks, strict=True):
            draw_block(matplotlib, part, block)
        handles = make_legend(matplotlib, blocks)
        place = {"loc": "outside upper left", "ncols": len(handles), "alignment": "left"}
        title = f"Products of fp32 matrices, {gpu.upper()}"
        figure.legend(handles=handles, title=title, frameon=False, **place)
        drawing.save_figure(figure, path)
