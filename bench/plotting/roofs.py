"""What a GPU can do at best, and what a row of a result file makes of it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Roofs(NamedTuple):
    """Each is a rate and where it comes from."""

    bandwidth: tuple[float, str]  # TB/s
    compute: dict[str, tuple[float, str]]  # what computes -> TFLOP/s


# The key is the name of the GPU in the `meta` of a result file.
ROOFS = {
    # The datasheet's rates are those of the SXM module without sparsity, at its highest clock;
    # a long product runs into the power limit before.
    "h200": Roofs(
        bandwidth=(4.25, "a copy, measured"),
        compute={
            "bf16, fp16": (989, "datasheet"),
            "TF32": (494, "datasheet"),
            "fp32, no tensor cores": (67, "datasheet"),
        },
    ),
}

ELEMENT_BYTES = {"ieee": 4, "tf32": 4, "bf16": 2, "fp16": 2}
# For one element. Softmax: maximum, difference, exponential, sum, product. Batch norm in training:
# one for the mean, three for the variance, three for the result.
LAYER_FLOPS = {"softmax": 5, "batch_norm": 7}
PRODUCT = "bare_product"
COPY = "copy"


class Point(NamedTuple):
    model: str
    precision: str
    ours: bool
    intensity: float  # FLOP per byte of the traffic that cannot be avoided
    tflops: float  # per second


def count_flops(row: dict) -> float:
    """Those of the product alone, where there is one."""
    m, n, k = row["M"], row["N"], row["K"]
    return 2 * m * n * k if k else LAYER_FLOPS[row["model"]] * m * n


def count_bytes(row: dict) -> float:
    """Inputs read once and the result written once; a layer says its traffic itself."""
    m, n, k = row["M"], row["N"], row["K"]
    if not k:
        return 1e6 * row["gbps"] * row["ms"]
    return ELEMENT_BYTES[row["precision"]] * (m * k + n * k + m * n)


def make_point(row: dict) -> Point:
    flops, ours = count_flops(row), row["variant"].startswith("ours")
    intensity, tflops = flops / count_bytes(row), 1e-9 * flops / row["ms"]
    return Point(row["model"], row["precision"], ours, intensity, tflops)


def compute_points(rows: Iterable[dict]) -> list[Point]:
    """Two for each case: ours, and the fastest of the peers. One where the other is missing.

    A model that was timed in both modes is taken in training. fp16 is left out: it has the traffic
    and the roofs of bf16, and its points would lie on those.
    """
    cases = {}
    for row in rows:
        if row["precision"] == "fp16":
            continue
        key = row["model"], row["precision"], row["M"], row["N"], row["K"]
        cases.setdefault(key, {}).setdefault(row["mode"], []).append(row)
    points = []
    for modes in cases.values():
        points += _choose_points(modes.get("train") or modes["eval"])
    return points


def _choose_points(rows: Sequence[dict]) -> list[Point]:
    ours = [row for row in rows if row["variant"] == "ours"]
    peers = [row for row in rows if not row["variant"].startswith(("ours", PRODUCT, COPY))]
    fastest = [min(part, key=lambda row: row["ms"]) for part in (ours, peers) if part]
    return [make_point(row) for row in fastest]
