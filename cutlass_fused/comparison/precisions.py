"""The precisions of a model, and PyTorch's own setting for them."""

import contextlib
from typing import NamedTuple

import torch


class Precision(NamedTuple):
    label: str
    dtype: torch.dtype
    setting: str  # what the fused module is given and what PyTorch's fp32 products are set to


PRECISIONS = {
    "ieee": Precision("fp32 ieee", torch.float32, "ieee"),
    "tf32": Precision("fp32 tf32", torch.float32, "tf32"),
    "bf16": Precision("bf16", torch.bfloat16, "ieee"),
    "fp16": Precision("fp16", torch.float16, "ieee"),
}


@contextlib.contextmanager
def set_matmul_precision(setting: str):
    """PyTorch's fp32 products in this precision, and the setting restored."""
    # PyTorch's older setter is used: torch.compile's autotuner reads the older flag, which raises
    # once the newer setter was used.
    before = torch.backends.cuda.matmul.fp32_precision
    names = {"tf32": "high"}
    torch.set_float32_matmul_precision(names.get(setting, "highest"))
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(names.get(before, "highest"))
