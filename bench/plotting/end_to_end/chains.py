"""The table of bench.chains."""

import collections
from collections.abc import Sequence

from ..numbers import LABELS, format_time
from ..variants import Variants

# Who takes how many times as long as whom: (PyTorch's variant, ours).
PAIRS = (("eager", "ours"), ("eager", "ours_replays"), ("compile_graphs", "ours_graphs"))
CHAINS = (
    "eight layers of one width with a ReLU between them, in inference, on the host's clock from an "
    "idle GPU until the call is done. How many times as long as ours PyTorch takes: both in eager "
    "mode / PyTorch's eager mode over ours behind `fuse(graphs=True)` / PyTorch's torch.compile "
    "with CUDA graphs over ours in one that the caller captured. In brackets stand the "
    "milliseconds of ours."
)


def collect(rows: Sequence[dict]) -> dict[tuple[str, int, int], Variants]:
    """By precision, width and rows."""
    found: dict[tuple[str, int, int], Variants] = collections.defaultdict(dict)
    for row in rows:
        found[row["precision"], row["N"], row["M"]][row["variant"]] = row
    return found


def tabulate_chains(rows: Sequence[dict]) -> tuple[str, list[str], list[list[str]]]:
    """What the table says, and a line for each width and number of rows, a column for each
    precision."""
    found = collect(rows)
    precisions = list(dict.fromkeys(precision for precision, _, _ in found))
    lines = []
    for width, m in sorted({key[1:] for key in found}):
        cells = [compare(found.get((precision, width, m), {})) for precision in precisions]
        lines.append([str(width), str(m), *cells])
    return CHAINS, ["width", "rows", *(LABELS[precision] for precision in precisions)], lines


def compare(variants: Variants) -> str:
    """The ratios of all PAIRS on the host's clock, and the milliseconds of ours in each."""
    if not variants:
        return ""
    ratios = [variants[peer]["wall_ms"] / variants[own]["wall_ms"] for peer, own in PAIRS]
    own = [variants[own]["wall_ms"] for _, own in PAIRS]
    return f"**{' / '.join(f'{r:.2f}' for r in ratios)}** ({' / '.join(map(format_time, own))})"
