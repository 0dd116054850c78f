"""python -m bench.epilogues.lines DIR: which limits the results in DIR/epilogues.json keep.

Each line has a case, ours over the product alone (identity), the fastest peer over ours, and the
limits, of which those that are not kept are told as MISSED.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..plot import read_rows
from ..plotting.epilogues.ratios import (
    SIMPLE_PEERS,
    Case,
    Variants,
    collect,
    compare_with,
    compare_with_peers,
)
from ..plotting.roofs import ELEMENT_BYTES
from .cases import LARGE, SHORT
from .measure import SUITE
from .programs import PROGRAMS
from .variants import COPY

# Ours over the product alone, in bf16: programs of plain arithmetic, those with erf, tanh or exp.
MOST_OF_IDENTITY = {LARGE: (1.03, 1.06), SHORT: (1.08, 1.20)}
WITH_IDENTITY_LIMIT = "affine", "scale_leaky_relu", "gelu", "gelu_tanh", "silu"
# An operand of M x N may take so many times as long as its bytes do where they are copied.
MOST_OF_COPY = 1.15
MOST_OF_COMPILED = 1.01
LEAST_OF_PEERS = 1.0
LEAST_OF_PEERS_FP32 = 4.5  # "ieee", without an operand of M x N
MOST_SECONDS_A_KERNEL = 6.0
MOST_MS_FROM_CACHE = 10.0

OVER_IDENTITY = "ours/identity"


class Limit(NamedTuple):
    what: str
    value: float
    least: float = 0.0
    most: float = float("inf")

    @property
    def is_kept(self) -> bool:
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        bound = f"at most {self.most:.3f}" if self.least == 0 else f"at least {self.least:g}"
        return f"{self.what} {self.value:.3f} ({bound}: {'kept' if self.is_kept else 'MISSED'})"


def list_call_limits(case: Case, variants: Variants) -> list[Limit]:
    """Those of a case of one call; ratios whose variants are missing are left out."""
    limits, program = [], PROGRAMS[case.program]
    over_identity = compare_with(variants, "identity")
    over_compiled = compare_with(variants, "compiled")
    over_peers = compare_with_peers(variants, SIMPLE_PEERS)
    if case.precision == "bf16" and case.shape in MOST_OF_IDENTITY and over_identity is not None:
        if case.program in WITH_IDENTITY_LIMIT:
            most = MOST_OF_IDENTITY[case.shape][program.transcendental]
            limits.append(Limit(OVER_IDENTITY, over_identity, most=most))
        elif program.has_matrix and COPY in variants:
            limits.append(Limit(OVER_IDENTITY, over_identity, most=allow_matrix(case, variants)))
    if over_compiled is not None and case.shape == LARGE:
        limits.append(Limit("ours/compiled", over_compiled, most=MOST_OF_COMPILED))
    if over_peers is not None:
        least = LEAST_OF_PEERS
        if (case.precision, case.shape) == ("ieee", LARGE) and not program.has_matrix:
            least = LEAST_OF_PEERS_FP32
        limits.append(Limit("better of eager, compile/ours", over_peers, least=least))
    return limits


def allow_matrix(case: Case, variants: Variants) -> float:
    """What ours may be over the product alone where it reads M x N more."""
    moved = ELEMENT_BYTES[case.precision] * case.m * case.n
    # gbps counts what is read and what is written.
    milliseconds = 1e-6 * moved / variants[COPY]["gbps"]
    return 1 + MOST_OF_COPY * milliseconds / variants["identity"]["ms"]


def list_first_limits(variants: Variants) -> list[Limit]:
    limits = []
    if (first := variants.get("first_call")) and first["kernels"]:
        seconds = 1e-3 * first["ms"] / first["kernels"]
        limits.append(Limit("seconds a kernel", seconds, most=MOST_SECONDS_A_KERNEL))
    elif first:  # all of it was there when the library was built
        limits.append(Limit("ms, nothing linked", first["ms"], most=MOST_MS_FROM_CACHE))
    if cached := variants.get("cached_call"):
        limits.append(Limit("ms from the cache", cached["ms"], most=MOST_MS_FROM_CACHE))
    return limits


def describe(case: Case, variants: Variants, limits: Sequence[Limit], what: str = "") -> str:
    """The time of ours, ratios that have no limit, and those that have."""
    cells = [f"{variants['ours']['ms']:.4f} ms"] if "ours" in variants else []
    over_identity, over_peers = compare_with(variants, "identity"), compare_with_peers(variants)
    if over_identity is not None and all(limit.what != OVER_IDENTITY for limit in limits):
        cells.append(f"{OVER_IDENTITY} {over_identity:.3f}")
    if over_peers is not None and "max_autotune" in variants:
        cells.append(f"best of all peers/ours {over_peers:.3f}")
    return f"{case}{what}: " + ", ".join([*cells, *map(str, limits)])


def main(arguments: Sequence[str]) -> int:
    """Returns 1 where a limit is not kept."""
    (folder,) = arguments
    _, rows = read_rows(pathlib.Path(folder), SUITE)
    _, steps = read_rows(pathlib.Path(folder), SUITE, grad=True)
    found = [
        *((*pair, list_call_limits(*pair), "") for pair in collect(rows).items()),
        *(
            (case, each, list_first_limits(each), ", first call")
            for case, each in collect(rows, fresh=True).items()
        ),
        *(
            (case, each, list_call_limits(case, each), ", training step")
            for case, each in collect(steps).items()
        ),
    ]
    limits = [limit for *_, each, _ in found for limit in each]
    for case, variants, own, what in found:
        print(describe(case, variants, own, what))
    missed = [
        f"{case}{what}: {limit}"
        for case, _, own, what in found
        for limit in own
        if not limit.is_kept
    ]
    print(f"{len(missed)} of {len(limits)} limits are not kept" + ":" * bool(missed))
    for line in missed:
        print(f"  {line}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
