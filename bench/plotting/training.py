"""The tables of the steps of training, from the rows of training.json."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from cutlass_fused.comparison.drawing import MODELS

from ..measure.results import PRECISIONS
from ..steps.cases import MODELS as STEPS
from .numbers import LABELS, format_time

# Peer, ours: in eager mode, compiled, in CUDA graphs.
PAIRS = (("eager", "ours"), ("compile", "ours_compile"), ("compile_graphs", "ours_graphs"))
HOW = dict(zip(PAIRS, ("in eager mode", "under `torch.compile`", "in CUDA graphs"), strict=True))
PRODUCTS = "bare_products"
NAMES = MODELS | {
    "stylegan2_mapping": "mapping network of StyleGAN2",
    "pointnet_head": "head of PointNet",
    "tabular_resnet": "tabular ResNet",
    "dlrm_top": "top MLP of DLRM",
    "pinn": "PINN of Burgers' equation",
    "vit_mlp": "MLP block of ViT-B",
}
TASKS = {"energies": "energies", "forces": "forces", "force_step": "loss of forces"}
CLOCKS = ("ms", "wall_ms")  # the GPU's, the host's

Variants = dict[str, dict]  # the rows of a case in one precision
Case = tuple[str, int, int, int]  # the model, M, N, K
Steps = dict[Case, dict[str, Variants]]  # by precision
Table = tuple[list[str], list[list[str]]]  # titles, lines


def collect_steps(rows: Iterable[dict], *kinds: str) -> Steps:
    """Those with a new weight, of models of these kinds, in the order of the suite."""
    found: Steps = {}
    for row in rows:
        if row["weight"] == "new" and STEPS[row["model"]].kind in kinds:
            case = row["model"], row["M"], row["N"], row["K"]
            precision = found.setdefault(case, {}).setdefault(row["precision"], {})
            precision[row["variant"]] = row
    order = list(STEPS)
    return dict(sorted(found.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1:])))


def list_precisions(found: Steps) -> list[str]:
    return [name for name in PRECISIONS if any(name in columns for columns in found.values())]


def name_step(model: str) -> str:
    if model in NAMES:
        return NAMES[model]
    task, _, depth = model.rpartition("_")
    return f"{TASKS[task]}, {depth} layers"


def tabulate_layers(rows: Sequence[dict]) -> Table:
    return _tabulate(collect_steps(rows, "layer"), compare_layer)


def tabulate_whole(rows: Sequence[dict]) -> Table:
    return _tabulate(collect_steps(rows, "whole"), lambda each: compare(each, PAIRS, "wall_ms"))


def tabulate_memory(rows: Sequence[dict]) -> Table:
    """Of potentials those of the widest layers."""
    potentials = collect_steps(rows, "potential")
    widest = {case[:2]: case for case in potentials}  # their order is by width
    found = collect_steps(rows, "layer", "whole")
    found |= {case: potentials[case] for case in widest.values()}
    return _tabulate(found, lambda each: compare(each, PAIRS[:2], "peak_mib"))


def _tabulate(found: Steps, write: Callable[[Variants], str]) -> Table:
    precisions = list_precisions(found)
    lines = []
    for (model, *shape), columns in found.items():
        cells = [write(columns.get(name, {})) for name in precisions]
        if any(cells):
            lines.append([name_step(model), " x ".join(map(str, shape)), *cells])
    return ["step of", "M x N x K", *(LABELS[name] for name in precisions)], lines


def compare_layer(variants: Variants) -> str:
    """The faster of eager and torch.compile over ours, ours over its products, and ours."""
    if "ours" not in variants:
        return ""
    ours = variants["ours"]["ms"]
    peers = [variants[name]["ms"] for name in ("eager", "compile") if name in variants]
    ratios = [f"{min(peers) / ours:.2f}" if peers else "-"]
    ratios.append(f"{ours / variants[PRODUCTS]['ms']:.2f}" if PRODUCTS in variants else "-")
    return f"**{' / '.join(ratios)}** ({format_time(ours)})"


def compare(variants: Variants, pairs: Sequence[tuple[str, str]], key: str) -> str:
    """The ratios, and ours; a hyphen where one of a pair is missing."""
    values = {name: row[key] for name, row in variants.items() if row.get(key)}
    ratios, own = [], []
    for peer, ours in pairs:
        is_there = peer in values and ours in values
        ratios.append(f"{values[peer] / values[ours]:.2f}" if is_there else "-")
        own.append(format_time(values[ours]) if ours in values else "-")
    if set(own) == {"-"}:
        return ""
    return f"**{' / '.join(ratios)}** ({' / '.join(own)})"


def collect_potentials(rows: Iterable[dict], clock: str) -> dict[str, dict[Case, float]]:
    """By precision, eager over ours."""
    found = collect_steps(rows, "potential")
    ratios: dict[str, dict[Case, float]] = {name: {} for name in list_precisions(found)}
    for case, columns in found.items():
        for name, variants in columns.items():
            if {"eager", "ours"} <= variants.keys():
                ratios[name][case] = variants["eager"][clock] / variants["ours"][clock]
    return {name: cases for name, cases in ratios.items() if cases}


def tabulate_potentials(rows: Sequence[dict]) -> Table:
    """A line for each task and precision, a column for each width."""
    clocks = [collect_potentials(rows, clock) for clock in CLOCKS]
    widths = sorted({k for cases in clocks[0].values() for *_, k in cases})
    lines = []
    for task, what in TASKS.items():
        for precision in clocks[0]:
            cells = [
                " / ".join(mean_of(each[precision], task, width) for each in clocks)
                for width in widths
            ]
            if set(cells) != {"- / -"}:
                cells = ["" if cell == "- / -" else f"**{cell}**" for cell in cells]
                lines.append([f"{what}, {LABELS[precision]}", *cells])
    return ["step of", *map(str, widths)], lines


def mean_of(ratios: dict[Case, float], task: str, width: int) -> str:
    found = [
        ratio
        for (model, *_, k), ratio in ratios.items()
        if k == width and STEPS[model].word == task
    ]
    return f"{statistics.geometric_mean(found):.2f}" if found else "-"


# What a table says, and what makes it.
TABLES = (
    (
        "a forward and a backward pass of a layer with a new weight, by the time of the GPU. How "
        "many times as long as ours the faster of eager PyTorch and torch.compile takes / how many "
        "times as long as its three products alone by cuBLAS ours takes. In brackets stand the "
        "milliseconds of ours. 16 bits are the dtype of the whole model.",
        tabulate_layers,
    ),
    (
        "Whole models, on the host's clock, from an idle GPU until the step is done. How many "
        "times as long as ours PyTorch takes: both in eager mode / under torch.compile / PyTorch's "
        "torch.compile with CUDA graphs over our step in one. In brackets stand the milliseconds "
        "of ours.",
        tabulate_whole,
    ),
    (
        "Potentials in eager mode by the width of their layers: how many times as long as ours "
        "PyTorch takes, by the time of the GPU / on the host's clock. Each is the geometric mean "
        "over 3, 5 and 8 layers, or those of them that were timed.",
        tabulate_potentials,
    ),
    (
        "The most memory that a step takes beside weights, x and the gradient: how many times as "
        "much as ours PyTorch takes, both in eager mode / under torch.compile. In brackets stand "
        "the MiB of ours.",
        tabulate_memory,
    ),
)
