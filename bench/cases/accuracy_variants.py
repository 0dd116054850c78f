"""What computes a product of fp32 matrices: ours, cuBLAS, and three products of bf16 numbers."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison, functional

from .accuracy_cases import AccuracyCase
from .accuracy_inputs import INPUTS
from .cases import Run

# Whether x and weight lie along their rows, as they do where a gradient reads them. In the words of
# a Linear, dgrad is of grad and weight.T, wgrad of grad.T and x.T.
TURNED = {"dgrad": (False, True), "wgrad": (True, True)}


class Product(NamedTuple):
    """What a variant of a case works on: the operands of x @ weight.T, or of a batch of them."""

    case: AccuracyCase
    x: Tensor
    weight: Tensor

    @property
    def setting(self) -> str:
        """What PyTorch's fp32 products are set to, and what ours are told."""
        return comparison.PRECISIONS[self.case.precision].setting


def draw_product(case: AccuracyCase, device: str) -> Product:
    """A product of the same numbers in every precision."""
    generator = torch.Generator(device).manual_seed(0)
    draw = functools.partial(INPUTS[case.model], *case.outputs, case.depth, generator, device)
    if case.layout == "bmm":
        matrices = zip(*(draw() for _ in range(case.batch)), strict=True)
        return Product(case, *map(torch.stack, matrices))
    turned = TURNED.get(case.layout, (False, False))
    matrices = (lie_along_rows(m) if t else m for m, t in zip(draw(), turned, strict=True))
    return Product(case, *matrices)


def lie_along_rows(matrix: Tensor) -> Tensor:
    """The same numbers, those of a column side by side."""
    return matrix.t().contiguous().t()


def build_ours(product: Product) -> Run:
    """The function of a Linear; what its gradients call; the op of batches."""
    case, x, weight = product.case, product.x, product.weight
    if case.layout == "fwd":
        return functools.partial(functional.linear, x, weight, precision=product.setting)
    ops = torch.ops.cutlass_fused
    op = ops.bmm if case.layout == "bmm" else ops.linear
    return functools.partial(op, x, weight, precision=product.setting)


def build_eager(product: Product) -> Run:
    if product.case.layout == "fwd":
        return functools.partial(torch.nn.functional.linear, product.x, product.weight)
    return functools.partial(torch.matmul, product.x, product.weight.mT)


def build_bf16x3(product: Product) -> Run:
    """x = hi + lo, two bf16 numbers, split in each call; that of the weight is kept, as in ours.

    y = hi_x @ hi_w.T + (hi_x @ lo_w.T + lo_x @ hi_w.T): PyTorch has no setting for it on CUDA.
    """
    high_weight, low_weight = split_bf16(product.weight)

    def run() -> Tensor:
        high, low = split_bf16(product.x)
        y = multiply_bf16(high, low_weight)
        y += multiply_bf16(low, high_weight)
        y += multiply_bf16(high, high_weight)
        return y

    return run


def split_bf16(values: Tensor) -> tuple[Tensor, Tensor]:
    high = values.bfloat16()
    return high, (values - high).bfloat16()


def multiply_bf16(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T in float32."""
    if a.is_cuda:
        return torch.mm(a, b.T, out_dtype=torch.float32)
    # There is no such product on the CPU. Products of two bf16 numbers are exact in float32.
    return torch.mm(a.float(), b.float().T)


VARIANTS: dict[str, Callable[[Product], Run]] = {
    "ours": build_ours,
    "eager": build_eager,
    "bf16x3": build_bf16x3,
}


def list_accuracy_variants(variants: Sequence[str], case: AccuracyCase) -> list[str]:
    """Those of them that belong to the case: bf16x3 is more accurate than TF32, and beside the
    forward product it would show nothing new."""
    has_bf16x3 = (case.precision, case.layout) == ("ieee", "fwd")
    return [name for name in variants if name != "bf16x3" or has_bf16x3]
