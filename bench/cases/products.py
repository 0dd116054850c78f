"""The products of the suite `products`: a Linear's three, at sizes from 64 to 4096.

fwd    x @ weight.T      (M, K), (N, K)
dgrad  grad @ weight     (M, N), (N, K)
wgrad  grad.T @ x        (M, N), (M, K)
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LAYOUTS = ("fwd", "dgrad", "wgrad")
PRECISIONS = ("ieee", "tf32")
VARIANTS = ("ours", "cublas")
ROWS = (16, 256, 2048, 16384)
LAYERS = tuple((n, n) for n in (64, 128, 256, 512, 1024, 2048, 4096)) + ((512, 64), (64, 512))


class ProductCase(NamedTuple):
    layout: str
    weight: str  # kept: its split is given; new
    precision: str
    m: int
    n: int
    k: int

    def describe(self, suite: str) -> dict:
        """What the rows of this case share."""
        words = {"suite": suite, "model": "product", "mode": "eval", "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k}
        return {**words, **shape, "layout": self.layout, "weight": self.weight}

    def __str__(self) -> str:
        return f"{self.layout} {self.weight} {self.precision} {self.m} x {self.n} x {self.k}"


def list_product_cases(layouts: list[str], precisions: list[str]) -> list[ProductCase]:
    return [
        ProductCase(layout, weight, precision, m, n, k)
        for layout in layouts
        for weight in (("kept", "new") if layout == "fwd" else ("new",))
        for precision in precisions
        for m in ROWS
        for n, k in LAYERS
    ]


def build_operands(case: ProductCase, device: str) -> tuple[Tensor, Tensor]:
    """a and b, of which a @ b is the product, as a Linear has them: no matrix is copied."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = {"x": (case.m, case.k), "weight": (case.n, case.k), "grad": (case.m, case.n)}
    x, weight, grad = (
        torch.randn(shape, device=device, generator=generator) for shape in shapes.values()
    )
    return {"fwd": (x, weight.t()), "dgrad": (grad, weight), "wgrad": (grad.t(), x)}[case.layout]


def build_runs(case: ProductCase, a: Tensor, b: Tensor) -> dict[str, Callable[[], Tensor]]:
    """The variants. PyTorch's setting must be that of the precision."""
    ops = torch.ops.cutlass_fused
    split = ops.split_weight(b.t(), case.precision) if case.weight == "kept" else None
    # K up to 32 is multiplied as it is: no split is made.
    split = split if split is not None and split.numel() else None
    return {
        "ours": lambda: ops.linear(a, b.t(), None, case.precision, None, split),
        "cublas": lambda: a @ b,
    }
