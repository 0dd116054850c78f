"""Where a peer is faster than ours, suite by suite: a line of text for each case, or for many."""

from collections.abc import Sequence

from ..steps.cases import KINDS
from .numbers import LABELS
from .product_means import LOST, list_ratios
from .sweep_ratios import collect_times, compute_ratios
from .training import HOW, collect_steps, list_precisions, name_step
from .variants import LAYERS, NAMES, PEER_NAMES, find_variants, name_case, take_fastest

OUR_SPEED = "our speed over that of the fastest peer."


def list_losses(rows: Sequence[dict]) -> list[str]:
    """Each case in which a peer is faster."""
    keys = ("model", "mode", "precision", "M", "N", "K")
    lines = []
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        variants = find_variants(rows, **dict(zip(keys, case, strict=True)))
        peers = [row for name, row in variants.items() if name in PEER_NAMES]
        if not peers or "ours" not in variants:
            continue
        (fastest,) = take_fastest(peers)
        ratio = fastest["ms"] / variants["ours"]["ms"]
        if ratio < 1:
            model, mode, precision, *sizes = case
            name = LAYERS[model] if model in LAYERS else name_case(model, mode)
            shape = " x ".join(str(size) for size in sizes if size)  # a layer has no K
            peer = PEER_NAMES[fastest["variant"]]
            lines.append(f"{name}, {LABELS[precision]}, {shape}: {ratio:.3f}, {peer}")
    return lines


def list_lost_shapes(rows: Sequence[dict]) -> list[str]:
    """For each model at how many shapes a peer is faster."""
    lines = []
    for (model, precision), times in collect_times(rows).items():
        ratios = compute_ratios(times)
        lost = {shape: ratio for shape, ratio in ratios.items() if ratio < 1}
        if lost:
            where = min(lost, key=lost.get)
            lines.append(
                f"{NAMES[model]}, {LABELS[precision]}: below 1 at {len(lost)} of {len(ratios)} "
                f"shapes, least {lost[where]:.3f} at {' x '.join(map(str, where))}"
            )
    return lines


def list_lost_products(rows: Sequence[dict]) -> list[str]:
    """Each product in which cuBLAS is faster by more than the noise."""
    return [
        f"{column}, {LABELS[precision]}, {shape}: {ratio:.3f}"
        for (precision, column, shape), ratio in list_ratios(rows).items()
        if ratio < LOST
    ]


def list_lost_steps(rows: Sequence[dict]) -> list[str]:
    """For each precision and each pair of variants in how many steps PyTorch's is faster."""
    found = collect_steps(rows, *KINDS)
    lines = []
    for precision in list_precisions(found):
        for (peer, ours), how in HOW.items():
            ratios = {}
            for case, columns in found.items():
                each = columns.get(precision, {})
                if {peer, ours} <= each.keys():
                    ratios[case] = each[peer]["wall_ms"] / each[ours]["wall_ms"]
            lost = {case: ratio for case, ratio in ratios.items() if ratio < 1}
            if lost:
                where = min(lost, key=lost.get)
                model, *shape = where
                lines.append(
                    f"{LABELS[precision]}, {how}: below 1 at {len(lost)} of {len(ratios)} "
                    f"steps, least {lost[where]:.2f} at {name_step(model)}, "
                    f"{' x '.join(map(str, shape))}"
                )
    return lines


# The suite, what it is called, what its numbers are, whose rows: in graphs, under grad.
SUITES = (
    ("models", "Models", OUR_SPEED, {}, list_losses),
    ("memory_bound", "Layers alone", OUR_SPEED, {}, list_losses),
    ("sweep", "Many shapes", OUR_SPEED, {"graph": True}, list_lost_shapes),
    (
        "products",
        "Products",
        f"our speed over that of cuBLAS in CUDA graphs, where it is below {LOST}.",
        {"graph": True},
        list_lost_products,
    ),
    (
        "training",
        "Steps of training",
        "our speed over that of PyTorch on the host's clock, both in the same way. In CUDA graphs "
        "PyTorch's step is one of torch.compile, and ours an eager one.",
        {"grad": True},
        list_lost_steps,
    ),
)
