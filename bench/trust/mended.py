"""What these runs have found and what was mended since, each with the test that has it now.

A line is added with the change that mends: where it was found, and the test as pytest names it.
"""

from typing import NamedTuple


class Mended(NamedTuple):
    found: str  # what was wrong
    by: str  # the part that found it, with the seed and number of a fuzzed case
    test: str  # path::name


MENDED: tuple[Mended, ...] = (
    Mended(
        "The judge of products of two dtypes failed where no output was finite",
        "fuzz on the CPU",
        "tests/trust/test_fuzz.py::test_products_without_a_finite_output",
    ),
)
