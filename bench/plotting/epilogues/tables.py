"""The tables of bench.epilogues."""

from collections.abc import Sequence

from ...epilogues.cases import LARGE, SHORT
from ...epilogues.programs import PROGRAMS
from ..numbers import LABELS, format_time
from .ratios import Case, Variants, collect, compare_with, compare_with_peers, name_shape

# The columns of the first table.
COLUMNS = (
    ("bf16", LARGE),
    ("bf16", SHORT),
    ("ieee", LARGE),
    ("tf32", LARGE),
    ("fp16", LARGE),
)
Table = tuple[list[str], list[list[str]]]  # titles, lines


def describe_call(variants: Variants) -> str:
    """The fastest peer over ours, ours over no epilogue, and ours."""
    if "ours" not in variants:
        return ""
    ratios = compare_with_peers(variants), compare_with(variants, "identity")
    text = " / ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    return f"**{text}** ({format_time(variants['ours']['ms'])})"


def describe_speed(variants: Variants) -> str:
    """The fastest peer over ours, and ours."""
    ratio = compare_with_peers(variants)
    return "" if ratio is None else f"**{ratio:.2f}** ({format_time(variants['ours']['ms'])})"


def tabulate_calls(rows: Sequence[dict]) -> Table:
    """A line for each program, a column for each precision and large shape."""
    found = collect(rows)
    columns = [(p, shape) for p, shape in COLUMNS if any(c[1:] == (p, *shape) for c in found)]
    lines = []
    for name, program in PROGRAMS.items():
        cells = [describe_call(found.get(Case(name, p, *shape), {})) for p, shape in columns]
        if any(cells):
            lines.append([program.label, *cells])
    return ["epilogue", *(f"{LABELS[p]}, {name_shape(shape)}" for p, shape in columns)], lines


def tabulate_users(rows: Sequence[dict], steps: Sequence[dict]) -> Table:
    """A line for each program and smaller shape; calls, and steps of training."""
    large = {shape for _, shape in COLUMNS}
    calls = {case: each for case, each in collect(rows).items() if case.shape not in large}
    kinds = [(calls, ""), (collect(steps), ", training step")]
    every = {case for found, _ in kinds for case in found}
    columns = [
        (p, found, what)
        for p in dict.fromkeys(precision for precision, _ in COLUMNS)
        for found, what in kinds
        if any(case.precision == p for case in found)
    ]
    names = list(PROGRAMS)
    lines = []
    for name, *shape in sorted({(names.index(c.program), c.n, c.k, c.m) for c in every}):
        n, k, m = shape
        cells = [
            describe_speed(found.get(Case(names[name], p, m, n, k), {})) for p, found, _ in columns
        ]
        lines.append([PROGRAMS[names[name]].label, name_shape((m, n, k)), *cells])
    titles = ["epilogue", "M x N x K", *(LABELS[p] + what for p, _, what in columns)]
    return titles, lines


def tabulate_first_calls(rows: Sequence[dict]) -> Table:
    """Seconds of the call that links, and milliseconds of one that finds its kernel on disk."""
    lines = []
    for case, variants in collect(rows, fresh=True).items():
        if {"first_call", "cached_call"} <= variants.keys():
            first, cached = variants["first_call"], variants["cached_call"]
            lines.append(
                [
                    f"{PROGRAMS[case.program].label}, {LABELS[case.precision]}",
                    str(first["kernels"]),
                    f"{1e-3 * first['ms']:.2f}",
                    format_time(cached["ms"]),
                    format_time(cached["wall_ms"]),
                ]
            )
    titles = [
        "epilogue",
        "kernels linked",
        "first call, s",
        "from the cache, ms",
        "with tracing, ms",
    ]
    return titles, lines


# What a table says, and what makes it of the rows of calls and of steps.
TABLES = (
    (
        "how many times as long as ours the fastest of eager PyTorch, torch.compile and, where it "
        "was timed, its max-autotune takes / how many times as long as the product alone, by the "
        "same kernels, ours takes. In brackets stand the milliseconds of ours.",
        lambda rows, steps: tabulate_calls(rows),
    ),
    (
        "Layers of other sizes: how many times as long as ours the faster of eager PyTorch and "
        "torch.compile takes, by the time of the GPU. In brackets stand the milliseconds of ours.",
        tabulate_users,
    ),
    (
        "The first call in a process, on two cores, behind a product without a program: the "
        "seconds where nothing was linked before; the milliseconds where the cache on disk has the "
        "kernel, without and with the time that PyTorch takes to trace the function.",
        lambda rows, steps: tabulate_first_calls(rows),
    ),
)
