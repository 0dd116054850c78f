"""The cases of bench.accuracy: what the matrices hold, a layout, a precision and a shape.

M, N and K are those of a Linear, as in bench.products, and the layouts are its:

fwd    x @ weight.T      (M, K), (N, K)
dgrad  grad @ weight     (M, N), (N, K)
wgrad  grad.T @ x        (M, N), (M, K)
bmm    x[b] @ weight[b].T
"""

from collections.abc import Sequence
from typing import NamedTuple

PRECISIONS = ("ieee", "tf32")
# What a layout adds up over: the key of a row.
DEPTHS = {"fwd": "K", "dgrad": "N", "wgrad": "M", "bmm": "K"}
LAYOUTS = tuple(DEPTHS)

# On a GPU a product of the longest, in float64, takes a few milliseconds.
SIZES = (1, 8, 32, 64, 256, 1024, 8192, 32768, 131072)
BATCHES = (4096, 16384, 131072)
# (M, N, K, batch)
SHAPES = {
    "fwd": (
        *((512, 512, k, 1) for k in SIZES),
        # That of the models, which fills the GPU: here times can be compared.
        (1024, 8192, 8192, 1),
    ),
    "dgrad": (
        *((512, n, 512, 1) for n in BATCHES[:2]),
        (64, 16384, 64, 1),  # few outputs: the sum is cut into parts
    ),
    # A small layer and one of a network's middle, by the batch.
    "wgrad": tuple((m, n, n, 1) for m in BATCHES for n in (64, 1024)),
    # As an attention of few heads has them, and with a long sum.
    "bmm": ((512, 512, 64, 8), (64, 64, 16384, 4)),
}


class AccuracyCase(NamedTuple):
    model: str  # what the matrices hold
    precision: str
    m: int
    n: int
    k: int
    layout: str = "fwd"
    batch: int = 1

    @property
    def depth(self) -> int:
        """The number of terms in a sum."""
        return {"M": self.m, "N": self.n, "K": self.k}[DEPTHS[self.layout]]

    @property
    def outputs(self) -> tuple[int, int]:
        """The rows and columns of one result."""
        sizes = {"fwd": (self.m, self.n), "dgrad": (self.m, self.k), "wgrad": (self.n, self.k)}
        return sizes.get(self.layout, (self.m, self.n))

    def describe(self, suite: str) -> dict:
        """The part of a row that all variants share."""
        words = {"suite": suite, "model": self.model, "mode": "eval", "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k, "layout": self.layout}
        return {**words, **shape} | ({"batch": self.batch} if self.batch > 1 else {})

    def __str__(self) -> str:
        size = f"{self.batch} x " if self.batch > 1 else ""
        size += f"{self.m} x {self.n} x {self.k}"
        return f"{self.model}, {self.layout}, {self.precision}, {size}"


def list_accuracy_cases(
    models: Sequence[str], precisions: Sequence[str], layouts: Sequence[str]
) -> list[AccuracyCase]:
    return [
        AccuracyCase(model, precision, m, n, k, layout, batch)
        for layout in layouts
        for model in models
        for precision in precisions
        for m, n, k, batch in SHAPES[layout]
    ]


def get_layout(row: dict) -> str:
    """Older rows, which do not say it, are of forward products."""
    return row.get("layout", "fwd")


def get_depth(row: dict) -> int:
    """The number of terms in a sum."""
    return row[DEPTHS[get_layout(row)]]
