"""The rows of a case by their variant: which are peers, what they and the models are called."""

from collections.abc import Iterable, Sequence

from cutlass_fused.comparison.drawing import MODELS, MODES

from .roofs import COPY, PRODUCT

LAYERS = {"softmax": "softmax", "batch_norm": "batch norm"}
NAMES = {**MODELS, "linear": "Linear"}
PEER_NAMES = {
    "eager": "eager PyTorch",
    "compile": "`torch.compile`",
    "max_autotune": "`torch.compile` with max-autotune",
    "cudnn": "cuDNN's fused graph",
    "folded": "batch norm folded into the weight",
}
# Variants that are no other peers.
OWN = ("ours", "eager", PRODUCT, COPY)

Variants = dict[str, dict]  # the rows of a case


def find_variants(rows: Iterable[dict], **case) -> Variants:
    found = [row for row in rows if all(row[key] == value for key, value in case.items())]
    return {row["variant"]: row for row in found}


def list_peers(variants: Variants) -> list[dict]:
    """Those other than eager."""
    names = [name for name in variants if name not in OWN and not name.startswith("ours")]
    return [variants[name] for name in names]


def take_fastest(rows: Sequence[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["ms"])[:1]


def name_case(model: str, mode: str) -> str:
    return NAMES[model] if model == "12" else f"{NAMES[model]}, {MODES[mode]}"
