"""Draws speed-ups as bars. For the demo and bench/plot.py."""

import math
import pathlib
from collections.abc import Iterable, Sequence

# Okabe and Ito's colours, which the colour-blind can tell apart; those of one kind are hatched.
BLUE, SKY, GREEN, ORANGE, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7"
GREY = "#666666"
# variant: label, colour, hatch; in the order of the bars
BARS = {
    "ours": ("ours", BLUE, ""),
    "ours_sm80": ("ours, SM80 kernels", SKY, "///"),
    "ours_uncached": ("ours, uncached", SKY, "..."),
    "compile": ("torch.compile", ORANGE, ""),
    "max_autotune": ("compile, max-autotune", ORANGE, "///"),
    "cudnn": ("cuDNN graph", GREEN, ""),
    "folded": ("batch norm folded", PURPLE, ""),
}
PRODUCT = "bare_product"  # no peer: what the model would take by cuBLAS if its tail cost nothing
BASELINE = "eager"

PRECISIONS = {"ieee": "fp32", "tf32": "TF32", "bf16": "bf16", "fp16": "fp16"}
MODES = {"train": "training", "eval": "inference"}
# With the number of the problem in KernelBench.
MODELS = {
    "12": "Linear + scale + LeakyReLU (12)",
    "33": "Linear + scale + BatchNorm (33)",
    "39": "Linear + scale + BatchNorm (39)",
    "84": "Linear + BatchNorm + scale + softmax (84)",
}

WIDTH = 9  # inches; at 100 pixels to the inch, as wide as a README is shown
PIXELS_PER_INCH = 200
LEGEND_COLUMNS = 4
STYLE = {"font.size": 8.5, "axes.titlesize": 9, "axes.spines.top": False, "hatch.linewidth": 0.6}
STYLE |= {"axes.spines.right": False, "axes.edgecolor": GREY, "hatch.color": "white"}


def load_matplotlib():
    """matplotlib without pyplot: PNG files are drawn by its backend Agg, whichever is chosen.

    Raises ImportError that says how to get it.
    """
    try:
        import matplotlib.figure
        import matplotlib.lines
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError as error:
        message = f"drawing needs matplotlib, which `pip install matplotlib` installs: {error}"
        raise ImportError(message) from error
    return matplotlib


def make_figure(matplotlib, height: float):
    """A figure as wide as all of them; `height` in inches."""
    return matplotlib.figure.Figure((WIDTH, height), dpi=PIXELS_PER_INCH, layout="constrained")


def save_figure(figure, path: str | pathlib.Path) -> None:
    # Without the version of matplotlib, so that equal pictures are equal files.
    figure.savefig(path, format="png", metadata={"Software": None})


def group_rows(rows: Iterable[dict]) -> dict[tuple[str, str], dict[str, dict[str, dict]]]:
    """(model, mode) -> precision -> variant -> row, each in the order in which it is drawn.

    Raises ValueError for two rows of one variant of a case, and where no case has the baseline.
    """
    panels = {}
    for row in rows:
        case = row["model"], row["mode"]
        variants = panels.setdefault(case, {}).setdefault(row["precision"], {})
        if row["variant"] in variants:
            raise ValueError(f"rows: {row['variant']} is there twice for {case}")
        variants[row["variant"]] = row
    drawn = {}
    for case in sorted(panels, key=lambda case: (case[0], list(MODES).index(case[1]))):
        found = panels[case]
        kept = [name for name in PRECISIONS if BASELINE in found.get(name, {})]
        if kept:
            drawn[case] = {precision: found[precision] for precision in kept}
    if not drawn:
        raise ValueError(f"rows: nothing can be drawn without {BASELINE}")
    return drawn


def describe_shape(row: dict) -> str:
    if not {"M", "N", "K"} <= row.keys():
        return ""
    m, n, k = row["M"], row["N"], row["K"]
    return f"M={m}, K=N={n}" if k == n else f"M={m}, N={n}, K={k}"


def compute_speedups(variants: dict[str, dict]) -> dict[str, float]:
    """The baseline's time over that of each variant, in the order of the bars."""
    baseline = variants[BASELINE]["ms"]
    names = [name for name in (*BARS, PRODUCT) if name in variants]
    return {name: baseline / variants[name]["ms"] for name in names}


def draw_panel(axes, case: tuple[str, str], precisions: dict[str, dict[str, dict]]) -> None:
    model, mode = case
    most = max(len(variants.keys() & BARS.keys()) for variants in precisions.values())
    width = 0.84 / max(most, 3)
    for place, (precision, variants) in enumerate(precisions.items()):
        speedups = compute_speedups(variants)
        bars = [name for name in speedups if name in BARS]
        left = place - width * len(bars) / 2
        for i, name in enumerate(bars):
            draw_bar(axes, name, left + (i + 0.5) * width, width, speedups[name])
        if PRODUCT in speedups:
            span = left - 0.03, left + width * len(bars) + 0.03
            axes.hlines(speedups[PRODUCT], *span, color="black", linewidth=1.1, zorder=3)
        write_below(axes, place, 1, PRECISIONS[precision])
        if "ours" in speedups:
            text = f"ours {speedups['ours']:.2f}"
            write_below(axes, place, 2, text, color=BLUE, fontweight="bold")
    axes.axhline(1, color=GREY, linewidth=0.8, zorder=1)
    axes.set_xticks([])
    axes.set_xlim(-0.55, len(precisions) - 0.45)
    row = next(iter(next(iter(precisions.values())).values()))
    details = ", ".join(text for text in (MODES[mode], describe_shape(row)) if text)
    axes.set_title(f"{MODELS[model]}\n{details}", loc="left")


def draw_bar(axes, name: str, x: float, width: float, speedup: float) -> None:
    """It stands on 1: upwards is faster, downwards is slower."""
    _, colour, hatch = BARS[name]
    axes.bar(x, speedup - 1, 0.94 * width, 1, color=colour, hatch=hatch, zorder=2)
    # So that a bar without height is seen.
    axes.hlines(speedup, x - 0.47 * width, x + 0.47 * width, color=colour, linewidth=1, zorder=2)


def write_below(axes, x: float, line: int, text: str, **style) -> None:
    """Under the axis, where no bar can be in the way."""
    place, points = axes.get_xaxis_transform(), (0, 3 - 13 * line)
    offset = {"xytext": points, "textcoords": "offset points", "va": "baseline"}
    axes.annotate(text, (x, 0), xycoords=place, ha="center", **offset, **style)


def set_scale(all_axes: Sequence, speedups: Iterable[float]) -> None:
    """One logarithmic axis for all: twice as fast is as far from 1 as half as fast."""
    values = [1.0, *speedups]
    low, high = min(0.85, min(values) / 1.15), max(1.25, max(values) * 1.2)
    steps = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
    if high / low < 2:
        steps = (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6)
    ticks = [tick for tick in steps if low <= tick <= high]
    for axes in all_axes:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6, zorder=0)
        axes.set_axisbelow(True)


def make_legend(matplotlib, variants: set[str]) -> list:
    handles = [
        matplotlib.patches.Patch(facecolor=colour, hatch=hatch, label=label)
        for name, (label, colour, hatch) in BARS.items()
        if name in variants
    ]
    line = matplotlib.lines.Line2D
    handles.append(line([], [], color=GREY, linewidth=0.8, label="eager PyTorch = 1"))
    if PRODUCT in variants:
        label = "product alone (cuBLAS)"
        handles.append(line([], [], color="black", linewidth=1.1, label=label))
    return handles


def draw_speedups(rows: Sequence[dict], path: str | pathlib.Path) -> None:
    """A PNG of how many times faster than eager PyTorch each variant is.

    `rows` are those of a result file or of the demo: model, mode, precision, variant, ms and, for
    the titles, M, N, K. A panel for each model and mode, a group of bars for each precision; cases
    without eager are left out. Raises ValueError where nothing is left, and ImportError without
    matplotlib.
    """
    matplotlib = load_matplotlib()
    panels = group_rows(rows)
    cases = [variants for panel in panels.values() for variants in panel.values()]
    shown = {name for variants in cases for name in variants}
    columns = min(2, len(panels))
    lines = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(STYLE):
        handles = make_legend(matplotlib, shown)
        height = 2.3 * lines + 0.25 * math.ceil(len(handles) / LEGEND_COLUMNS) + 0.2
        figure = make_figure(matplotlib, height)
        all_axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for axes, (case, precisions) in zip(all_axes, panels.items(), strict=False):
            draw_panel(axes, case, precisions)
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        drawn = [compute_speedups(variants).values() for variants in cases]
        set_scale(all_axes[: len(panels)], [value for values in drawn for value in values])
        figure.supylabel("speed-up over eager PyTorch", fontsize=STYLE["axes.titlesize"])
        place = {"loc": "outside upper left", "ncols": LEGEND_COLUMNS}
        figure.legend(handles=handles, **place, frameon=False)
        save_figure(figure, path)
