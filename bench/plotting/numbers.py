"""Numbers as tables have them."""

import math


def format_time(time: float) -> str:
    """Three digits: 2.70, 0.392, 12.1."""
    return f"{time:.{max(0, 2 - math.floor(math.log10(time)))}f}"


def format_error(error: float) -> str:
    digits, exponent = f"{error:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
