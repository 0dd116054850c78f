"""Numbers, and names of precisions, as tables have them."""

import math

LABELS = {"ieee": 'fp32 `"ieee"`', "tf32": 'fp32 `"tf32"`', "bf16": "bf16", "fp16": "fp16"}


def format_time(time: float) -> str:
    """Three digits: 2.70, 0.392, 12.1."""
    return f"{time:.{max(0, 2 - math.floor(math.log10(time)))}f}"


def format_error(error: float) -> str:
    digits, exponent = f"{error:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
