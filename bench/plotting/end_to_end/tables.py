"""The tables of bench.end_to_end."""

from collections.abc import Sequence

from examples.models import EXAMPLES

from ..numbers import LABELS, format_time
from .ratios import (
    CLOCKS,
    FEW_ROWS,
    MANY_ROWS,
    OURS,
    PASSES,
    Case,
    Mean,
    collect,
    collect_ratios,
    compare,
    summarize,
    take_best,
)

Table = tuple[list[str], list[list[str]]]  # titles, lines


def list_kinds(cases: Sequence[Case]) -> list[tuple[str, str]]:
    """Modes and precisions, in the order of the suite: inference first."""
    kinds = dict.fromkeys((case.mode, case.precision) for case in cases)
    return [(mode, p) for mode in PASSES for found, p in kinds if found == mode]


def tabulate_means(rows: Sequence[dict]) -> Table:
    """A line for each pass and precision; few and many rows, by both clocks."""
    ratios = {clock: collect_ratios(rows, clock) for clock in CLOCKS}
    lines = []
    for mode, precision in list_kinds(list(ratios["wall_ms"])):
        cells = [
            write_mean(summarize(ratios[clock], mode, precision, many))
            for many in (False, True)
            for clock in CLOCKS
        ]
        lines.append([f"{PASSES[mode]}, {LABELS[precision]}", *cells])
    sizes = f"up to {FEW_ROWS} rows", f"{MANY_ROWS} rows and more"
    return ["", *(f"{size}, {name}" for size in sizes for name in CLOCKS.values())], lines


def write_mean(mean: Mean | None) -> str:
    return f"**{mean.mean:.2f}** (least {mean.worst:.2f}: {mean.where})" if mean else ""


def tabulate_models(rows: Sequence[dict], mode: str) -> Table:
    """A line for each model, a column for each precision, in a cell all batches."""
    found = {case: each for case, each in collect(rows).items() if case.mode == mode}
    precisions = list(dict.fromkeys(case.precision for case in found))
    lines = []
    for name, example in EXAMPLES.items():
        batches = sorted({case.m for case in found if case.model == name})
        cells = [
            write_batches([found.get(Case(name, mode, p, m), {}) for m in batches])
            for p in precisions
        ]
        if any(cells):
            lines.append([example.title, " / ".join(map(str, batches)), *cells])
    return ["model", "rows", *(LABELS[p] for p in precisions)], lines


def write_batches(cases: Sequence[dict]) -> str:
    """The ratio of each batch, and the milliseconds of ours."""
    ratios = [compare(variants, "wall_ms") for variants in cases]
    times = [take_best(variants, OURS, "wall_ms") for variants in cases]
    if not any(ratios):
        return ""
    text = " / ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    own = " / ".join("-" if time is None else format_time(time) for time in times)
    return f"**{text}** ({own})"


# What a table says, and what makes it.
TABLES = (
    (
        "how many times as long PyTorch takes as ours, each in its fastest way. PyTorch's are "
        "eager, torch.compile, and torch.compile with CUDA graphs. Ours are the fused model, the "
        "fused model in a captured graph and, where they were timed, our backend of torch.compile, "
        "without and with CUDA graphs. "
        "The geometric mean over the models and batches, and in brackets the least.",
        tabulate_means,
    ),
    (
        "Inference, on the host's clock, from an idle GPU until the call is done: the same ratio "
        "by batch. In brackets stand the milliseconds of ours.",
        lambda rows: tabulate_models(rows, "eval"),
    ),
    (
        "A training step, a forward and a backward pass, in the same way.",
        lambda rows: tabulate_models(rows, "train"),
    ),
)
