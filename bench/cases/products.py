"""The products of the suite `products`: a Linear's three, and those of batches.

fwd    x @ weight.T      (M, K), (N, K)
dgrad  grad @ weight     (M, N), (N, K)
wgrad  grad.T @ x        (M, N), (M, K)
bmm    x[b] @ weight[b].T, as attention has them
mixed  x @ weight.T with x of bf16 and an fp32 weight, to bf16, as routers and heads have them

The grid has sizes from 64 to 4096, and 16-bit matrices a part of it; the other shapes are those of
layers of real models.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison

from .model_shapes import ATTENTIONS, LINEARS

LAYOUTS = ("fwd", "dgrad", "wgrad", "bmm")
MIXED = "mixed"  # timed where it is asked for
KEPT = ("fwd", "dgrad", MIXED)  # whose second operand is a weight
SHAPES = ("grid", "models")
PRECISIONS = ("ieee", "tf32")
NARROW = ("bf16", "fp16")  # where asked for: the pictures and texts are of fp32
VARIANTS = ("ours", "cublas")
ROWS = (16, 256, 2048, 16384)
SPREAD_ROWS = (256, 2048, 8192, 16384)
SPREAD_LAYERS = ((256, 256), (1024, 1024), (4096, 4096), (512, 64), (64, 512))  # twenty shapes
LAYERS = tuple((n, n) for n in (64, 128, 256, 512, 1024, 2048, 4096)) + ((512, 64), (64, 512))
_MIXED_LAYERS = ("mixtral_router", "deepseek_router", "qwen_router", "gpt2_head", "reward_head")
MIXED_SHAPES = {name: LINEARS[name] for name in _MIXED_LAYERS}
MIXED_SHAPES |= {"mixtral_decode": (64, 8, 4096), "deepseek_decode": (64, 256, 7168)}


class ProductCase(NamedTuple):
    layout: str
    weight: str  # kept: its split is given; new
    precision: str
    m: int
    n: int
    k: int
    batch: int = 1
    source: str = ""  # the layer of a real model

    def describe(self, suite: str) -> dict:
        """What the rows of this case share."""
        words = {"suite": suite, "model": "product", "mode": "eval", "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k}
        own = {"layout": self.layout, "weight": self.weight}
        if self.batch > 1:
            own["batch"] = self.batch
        if self.source:
            own["source"] = self.source
        return {**words, **shape, **own}

    def __str__(self) -> str:
        of = f" ({self.source})" if self.source else ""
        size = f"{self.batch} x " if self.batch > 1 else ""
        size += f"{self.m} x {self.n} x {self.k}"
        return f"{self.layout} {self.weight} {self.precision} {size}{of}"


def list_shapes(shapes: list[str], layout: str, precision: str) -> list[tuple]:
    """(M, N, K, batch, source)."""
    if layout == "bmm":
        attentions = ATTENTIONS.items() if "models" in shapes else ()
        return [(m, n, k, batch, source) for source, (batch, m, n, k) in attentions]
    if layout == MIXED:
        routers = MIXED_SHAPES.items() if "models" in shapes else ()
        return [(*shape, 1, source) for source, shape in routers]
    rows, layers = (SPREAD_ROWS, SPREAD_LAYERS) if precision in NARROW else (ROWS, LAYERS)
    grid = [(m, n, k, 1, "") for m in rows for n, k in layers] if "grid" in shapes else []
    models = LINEARS.items() if "models" in shapes else ()
    return grid + [(*shape, 1, source) for source, shape in models]


def list_product_cases(
    layouts: list[str],
    precisions: list[str],
    shapes: list[str],
    sizes: Sequence[tuple[int, int, int]] = (),
) -> list[ProductCase]:
    """`sizes`: (M, N, K) of Linears instead of the suite's, of which no batch is made."""
    own = [(*size, 1, "") for size in sizes]
    return [
        ProductCase(layout, weight, precision, *shape)
        for layout in layouts
        for weight in (("kept", "new") if layout in KEPT else ("new",))
        for precision in precisions
        # Nothing of 16 bits is split, and no product of 16 bits alone is mixed.
        if precision in PRECISIONS or (weight == "new" and layout != MIXED)
        if not own or layout != "bmm"
        for shape in own or list_shapes(shapes, layout, precision)
    ]


def build_operands(case: ProductCase, device: str) -> tuple[Tensor, Tensor]:
    """a and b, of which a @ b is the product, as a Linear has them: no matrix is copied."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = comparison.PRECISIONS[case.precision].dtype

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator).to(dtype)

    m, n, k = case.m, case.n, case.k
    if case.layout == "bmm":
        # Values lie as (B, K, N).
        is_values = case.source.endswith("values")
        x, weight = draw(case.batch, m, k), draw(case.batch, *((k, n) if is_values else (n, k)))
        return x, weight if is_values else weight.transpose(1, 2)
    x, weight, grad = draw(m, k), draw(n, k), draw(m, n)
    if case.layout == MIXED:
        return x.bfloat16(), weight.t()
    return {"fwd": (x, weight.t()), "dgrad": (grad, weight), "wgrad": (grad.t(), x)}[case.layout]


def build_runs(case: ProductCase, a: Tensor, b: Tensor) -> dict[str, Callable[[], Tensor]]:
    """The variants. PyTorch's setting must be that of the precision."""
    ops = torch.ops.cutlass_fused
    word = comparison.PRECISIONS[case.precision].setting
    if case.layout == "bmm":
        ours = functools.partial(ops.bmm, a, b.transpose(1, 2), word)
        return {"ours": ours, "cublas": lambda: a @ b}
    split = ops.split_weight(b.t(), word) if case.weight == "kept" else None
    # K up to 32 is multiplied as it is: no split is made.
    split = split if split is not None and split.numel() else None
    runs = {
        "ours": lambda: ops.linear(a, b.t(), None, word, None, split),
        "cublas": lambda: a @ b,
    }
    if case.layout == MIXED:
        runs["cublas"] = lambda: (a.float() @ b).to(a.dtype)
    return runs
