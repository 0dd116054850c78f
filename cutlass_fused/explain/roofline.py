"""The least time that a product can take on this GPU, by what it does in the same run: copy, and
multiply in 16 bits. Tables of peaks would not know how warm it is."""

from typing import NamedTuple

import torch

from ..timing import time_in_turns

_SIZE = 8192
_COPIED = 2**30
# Products of 16 bits in one of float32: cutlass_fused/precision.py.
_PRODUCTS = {"ieee": 3, "tf32": 1}


class Roofline(NamedTuple):
    """flops: a second, in bf16. bandwidth: bytes a second, read and written."""

    flops: float
    bandwidth: float

    def find_ms(self, flops: float, size: float, dtype: torch.dtype, precision: str) -> float:
        count = _PRODUCTS[precision] if dtype == torch.float32 else 1
        return 1e3 * max(count * flops / self.flops, size / self.bandwidth)


def measure_roofline() -> Roofline:
    x = torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.bfloat16)
    source = torch.empty(_COPIED, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    variants = {"product": lambda: x @ x, "copy": lambda: target.copy_(source)}
    times = time_in_turns(variants, "cuda", rounds=9)
    seconds = {name: each.median / 1e3 for name, each in times.items()}
    return Roofline(2.0 * _SIZE**3 / seconds["product"], 2.0 * _COPIED / seconds["copy"])
