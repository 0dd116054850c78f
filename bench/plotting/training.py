"""The tables of the steps of training, from the rows of training.json."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from cutlass_fused.comparison.drawing import MODELS

from ..measure.results import PRECISIONS
from ..steps.cases import MODELS as STEPS
from .numbers import format_time

# Peer, ours: in eager mode, compiled, in CUDA graphs.
PAIRS = (("eager", "ours"), ("compile", "ours_compile"), ("compile_graphs", "ours_graphs"))
NAMES = MODELS | {
    "stylegan2_mapping": "mapping network of StyleGAN2",
    "pointnet_head": "head of PointNet",
    "tabular_resnet": "tabular ResNet",
    "dlrm_top": "top MLP of DLRM",
    "pinn": "PINN of Burgers' equation",
    "vit_mlp": "MLP block of ViT-B",
}
TASKS = {"energies": "energies", "forces": "forces", "force_step": "loss of forces"}
Steps = dict[tuple, dict[str, dict[str, dict]]]  # case -> precision -> variant -> row
Table = tuple[list[str], list[list[str]]]  # the precisions of its columns, its lines


def collect_steps(rows: Iterable[dict], is_wanted: Callable[[str], bool]) -> Steps:
    """Those with a new weight, of the models that are wanted, in the order of the suite."""
    found: Steps = {}
    for row in rows:
        if row["weight"] == "new" and is_wanted(row["model"]):
            case = row["model"], row["M"], row["N"], row["K"]
            precision = found.setdefault(case, {}).setdefault(row["precision"], {})
            precision[row["variant"]] = row
    order = list(STEPS)
    return dict(sorted(found.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1:])))


def is_potential(model: str) -> bool:
    return STEPS[model].kind == "potential"


def tabulate_steps(rows: Sequence[dict]) -> Table:
    """Layers and whole models."""
    return _tabulate(rows, lambda variants: compare(variants, PAIRS, "ms"))


def tabulate_walls(rows: Sequence[dict]) -> Table:
    return _tabulate(rows, lambda variants: compare(variants, PAIRS[:1], "wall_ms"))


def compare(variants: dict[str, dict], pairs: Sequence[tuple[str, str]], key: str) -> str:
    """The ratios, and ours; a hyphen where one of a pair is missing."""
    ratios, times = [], []
    for peer, ours in pairs:
        is_there = peer in variants and ours in variants
        ratios.append(f"{variants[peer][key] / variants[ours][key]:.2f}" if is_there else "-")
        times.append(format_time(variants[ours][key]) if ours in variants else "-")
    if set(times) == {"-"}:
        return ""
    return f"**{' / '.join(ratios)}** ({' / '.join(times)})"


def _tabulate(rows: Sequence[dict], write: Callable[[dict[str, dict]], str]) -> Table:
    found = collect_steps(rows, lambda model: not is_potential(model))
    precisions = list_precisions(found)
    lines = []
    for (model, *shape), columns in found.items():
        cells = [write(columns.get(name, {})) for name in precisions]
        lines.append([NAMES[model], " x ".join(map(str, shape)), *cells])
    return precisions, lines


def tabulate_potentials(rows: Sequence[dict]) -> Table:
    """A line for each task and depth."""
    found = collect_steps(rows, is_potential)
    precisions, by_model = list_precisions(found), {}
    for (model, m, *_), columns in found.items():
        line = by_model.setdefault((model, m), {name: [] for name in precisions})
        for name, variants in columns.items():
            if {"eager", "ours"} <= variants.keys():
                line[name].append(variants["eager"]["ms"] / variants["ours"]["ms"])
    lines = []
    for (model, m), ratios in by_model.items():
        task, _, depth = model.rpartition("_")
        cells = [describe_ratios(ratios[name]) for name in precisions]
        lines.append([f"{TASKS[task]}, {depth} layers", f"{m} x width x width", *cells])
    return precisions, lines


def describe_ratios(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"**{statistics.geometric_mean(ratios):.2f}** (least {min(ratios):.2f})"


def list_precisions(found: Steps) -> list[str]:
    return [name for name in PRECISIONS if any(name in columns for columns in found.values())]


# What a table says, and what makes it.
TABLES = (
    (
        "the time of the GPU for a forward and a backward pass with a new weight, that of PyTorch "
        "over ours: both in eager mode / under torch.compile / PyTorch's torch.compile with CUDA "
        "graphs over our step in one. In brackets stand the milliseconds of ours. 16 bits are the "
        "dtype of the whole model.",
        tabulate_steps,
    ),
    (
        "The same step in eager mode on the host's clock, from an idle GPU until it is done: "
        "PyTorch's milliseconds over ours, and ours.",
        tabulate_walls,
    ),
    (
        "Potentials in eager mode, PyTorch's time of the GPU over ours: the geometric mean over "
        "widths of 64 to 512, and the least.",
        tabulate_potentials,
    ),
)
