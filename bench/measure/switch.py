"""What a product of PyTorch's costs on the host in a process that never switched
`cutlass_fused.fp32_matmul` on, that has switched it off again, and with it on.

What the first switch installs stays, so all products are timed before it, and the three one after
the other. The rows know the first as "eager" and the last as "ours".
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import cutlass_fused
from cutlass_fused import comparison
from cutlass_fused.timing import Timing

from .checking import LARGEST_ERRORS, check_error
from .timing import make_row, time_host

SUITE = "switch"
SIZE = 64  # M, N and K: the GPU is done before the host is
BATCH = 4
PRODUCTS = {
    "mm": lambda a, b, c: functools.partial(torch.mm, a[0], b[0]),
    "linear": lambda a, b, c: functools.partial(torch.nn.functional.linear, a[0], b[0].t(), c),
    "bmm": lambda a, b, c: functools.partial(torch.bmm, a, b),
}
PRECISIONS = ("ieee", "bf16")
VARIANTS = ("eager", "ours")

Run = Callable[[], Tensor]


class SwitchCase(NamedTuple):
    product: str
    precision: str

    def describe(self, suite: str) -> dict:
        """What the rows of this case share."""
        words = {"suite": suite, "model": self.product, "mode": "eval", "precision": self.precision}
        batch = {"batch": BATCH} if self.product == "bmm" else {}
        return {**words, "M": SIZE, "N": SIZE, "K": SIZE, **batch}

    def __str__(self) -> str:
        return f"{self.product}, {self.precision}"


def list_switch_cases(precisions: Sequence[str]) -> list[SwitchCase]:
    return [
        SwitchCase(product, precision)
        for product in PRODUCTS
        for precision in PRECISIONS
        if precision in precisions
    ]


def build_run(case: SwitchCase, device: str) -> tuple[Run, Tensor]:
    """The call, and its result in float64."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = (BATCH, SIZE, SIZE), (BATCH, SIZE, SIZE), (SIZE,)
    dtype = comparison.PRECISIONS[case.precision].dtype
    operands = [
        torch.randn(shape, device=device, generator=generator).to(dtype) for shape in shapes
    ]
    build = PRODUCTS[case.product]
    return build(*operands), build(*(operand.double() for operand in operands))()


def time_under(case: SwitchCase, under, device: str, rounds: int) -> tuple[Timing, float]:
    """Its host time within a context, and its error."""
    run, truth = build_run(case, device)
    with torch.no_grad(), comparison.set_matmul_precision("ieee"), under:
        error = comparison.compute_error(run(), truth)
        check_error(str(case), error, LARGEST_ERRORS[case.precision])
        return time_host({"": run}, device, rounds)[""], error


def measure_never(
    cases: Sequence[SwitchCase], device: str, rounds: int
) -> dict[SwitchCase, tuple[Timing, float]]:
    """To be called before anything has switched it on."""
    return {case: time_under(case, contextlib.nullcontext(), device, rounds) for case in cases}


def measure_switch(never: dict, device: str, rounds: int, case: SwitchCase) -> list[dict]:
    """The rows of one case; all three are printed."""
    with cutlass_fused.fp32_matmul("ieee"):
        pass
    measured = {
        "never": never[case],
        "off": time_under(case, contextlib.nullcontext(), device, rounds),
        "on": time_under(case, cutlass_fused.fp32_matmul("ieee"), device, rounds),
    }
    base = never[case][0].median
    for label, (timing, _) in measured.items():
        print(
            f"  {label:6}{1e3 * timing.median:9.2f} us{1e3 * (timing.median - base):+9.2f} us"
            f"{timing.median / base:9.3f}",
            flush=True,
        )
    part = case.describe(SUITE)
    return [
        make_row(part, variant, *measured[label])
        for variant, label in zip(VARIANTS, ("never", "on"), strict=True)
    ]
