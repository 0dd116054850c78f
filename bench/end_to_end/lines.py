"""python -m bench.end_to_end.lines DIR: which limits the results in DIR/end_to_end.json keep.

Each line has a case, the fastest way of ours and of PyTorch by the host's clock, and how many times
as long as ours PyTorch takes by both clocks. Means follow. Limits are of the host's clock.
"""

import pathlib
import sys
from collections.abc import Sequence

from ..epilogues.lines import Limit
from ..plot import read_real_models
from ..plotting.end_to_end.ratios import (
    CLOCKS,
    LOST,
    OURS,
    PASSES,
    PEERS,
    Case,
    Variants,
    collect,
    collect_ratios,
    compare,
    summarize,
)

# Of geometric means over the models, by pass and precision: at many rows, and at few.
LEAST_AT_MANY = {("eval", "ieee"): 2.2, ("train", "ieee"): 2.0}
LEAST_AT_MANY |= {("eval", "bf16"): 1.1, ("train", "bf16"): 1.05}
LEAST_AT_FEW = 1.05
# The mapping network at a small batch, over torch.compile with CUDA graphs.
MAPPING = Case("stylegan2_mapping", "eval", "ieee", 16)
LEAST_OF_MAPPING = 1.2


def list_limits(case: Case, variants: Variants) -> list[Limit]:
    """Those of a case; ratios whose variants are missing are left out."""
    limits, ratio = [], compare(variants, "wall_ms")
    if ratio is not None:
        limits.append(Limit("fastest of PyTorch/ours", ratio, least=LOST))
    if case == MAPPING and "compile_graphs" in variants:
        only = {name: variants[name] for name in (*OURS, "compile_graphs") if name in variants}
        if (ratio := compare(only, "wall_ms")) is not None:
            limits.append(Limit("compile_graphs/ours", ratio, least=LEAST_OF_MAPPING))
    return limits


def list_mean_limits(rows: Sequence[dict]) -> dict[str, Limit]:
    """Of each pass and precision, by what they are called."""
    ratios, limits = collect_ratios(rows), {}
    for mode, precision in dict.fromkeys((case.mode, case.precision) for case in ratios):
        for many, what in ((False, "few rows"), (True, "many rows")):
            mean = summarize(ratios, mode, precision, many)
            least = LEAST_AT_MANY.get((mode, precision), LOST) if many else LEAST_AT_FEW
            if mean is not None:
                name = f"{PASSES[mode]}, {precision}, {what}"
                limits[name] = Limit("geometric mean", mean.mean, least=least)
    return limits


def name_fastest(variants: Variants, names: Sequence[str]) -> str:
    found = [name for name in names if name in variants]
    return min(found, key=lambda name: variants[name]["wall_ms"], default="none")


def describe(case: Case, variants: Variants, limits: Sequence[Limit]) -> str:
    cells = [f"{name_fastest(variants, OURS)} beside {name_fastest(variants, PEERS)}"]
    for clock, name in CLOCKS.items():
        if (ratio := compare(variants, clock)) is not None:
            cells.append(f"{ratio:.3f} by {name}")
    missed = [str(limit) for limit in limits if not limit.is_kept]
    return f"{case}, {PASSES[case.mode]}, {case.precision}: " + ", ".join([*cells, *missed])


def main(arguments: Sequence[str]) -> int:
    """Returns 1 where a limit is not kept."""
    (folder,) = arguments
    _, rows = read_real_models(pathlib.Path(folder))
    limits = []
    for case, variants in collect(rows).items():
        own = list_limits(case, variants)
        print(describe(case, variants, own))
        limits += own
    for name, limit in list_mean_limits(rows).items():
        print(f"{name}: {limit}")
        limits.append(limit)
    missed = [limit for limit in limits if not limit.is_kept]
    print(f"{len(missed)} of {len(limits)} limits are not kept")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
