"""The errors of a product against float64, and those that no variant may exceed."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison
from cutlass_fused.precision import bound_error

from ..cases.accuracy_cases import AccuracyCase
from ..cases.accuracy_inputs import REMAINDER
from .checking import LARGEST_ERRORS, check_error

# Its numbers have 16 bits where fp32 has 24, and nothing promotes its sums over a long K.
LARGEST_ERROR_BF16X3 = 1e-3

# LARGEST_ERRORS are of sums over so many terms. Rounding errors of longer ones add up as the root.
LONGEST_SUM = 8192
# The relative errors of cancelling inputs are those of their terms, beside so much less.
AMPLIFICATION = {"cancelling": 2 / REMAINDER}
# The worst of all outputs may err by so many times more.
COMPONENTWISE_FACTOR = 10
# And the worst column or row, over which errors average.
LINE_FACTOR = 4

LINE_ERRORS = ("err_column", "err_row")
# What ours may be: so many times cuBLAS's in the same precision, and one unit in the last place. A
# sum of one large term loses far less in plain fp32, and nearly as much as a unit in two parts.
MOST_OF_CUBLAS = 2
UNIT = 2.0**-23


class ProductTruth(NamedTuple):
    y: Tensor  # x @ weight.T, or a batch of them
    size: Tensor  # |x| @ |weight|.T: what rounding errors are proportional to


class Errors(NamedTuple):
    rel_err: float  # relative L2 error
    # Over the outputs, of |error| / (|x| @ |weight|.T). The median is the lower of the middle two.
    err_median: float
    err_componentwise: float  # the largest
    # The largest, over the columns, of the relative L2 error of a column; over the rows.
    err_column: float
    err_row: float


def compute_product_truth(x: Tensor, weight: Tensor) -> ProductTruth:
    """In float64."""
    x, weight = x.double(), weight.double()
    return ProductTruth(x @ weight.mT, x.abs() @ weight.abs().mT)


def compute_errors(y: Tensor, truth: ProductTruth) -> Errors:
    """NaN where any of y is NaN; infinite where an output without terms is not zero."""
    error = y.double() - truth.y
    size = error.abs()
    # An exact zero of terms that are all zero has no error, and not 0 / 0.
    parts = torch.where(size == 0, size, size / truth.size)
    return Errors(
        comparison.compute_error(y, truth.y),
        parts.median().item(),
        parts.max().item(),
        find_worst_line(error, truth.y, -2),
        find_worst_line(error, truth.y, -1),
    )


def find_worst_line(error: Tensor, truth: Tensor, along: int) -> float:
    """The largest |error of a line| / |line| of the lines along a dimension: of columns along -2.

    Before, each line across is divided by the geometric mean of its elements: of a column whose
    elements differ by orders of magnitude, because the rows do, the largest few would hide the
    errors of all others.
    """
    size = torch.where(truth == 0, torch.nan, truth.abs())
    # Rows and columns that are multiplied by numbers of their own come out as if they were not.
    across = size.log().nanmean(dim=-3 - along, keepdim=True).exp().nan_to_num(nan=1.0)
    lost, whole = (matrix.div(across).norm(dim=along) for matrix in (error, truth))
    return torch.where(lost == 0, lost, lost / whole).max().item()


def compare_lines(rows: Iterable[dict]) -> dict[str, float]:
    """Ours over cuBLAS's, of the rows of a case that have both: for each of LINE_ERRORS."""
    found = {row["variant"]: row for row in rows}
    ours, eager = found.get("ours", {}), found.get("eager", {})
    return {
        key: divide(ours[key], eager[key]) for key in LINE_ERRORS if key in ours and key in eager
    }


def limit_line(eager: float) -> float:
    """The largest error of a column or row that ours may have, given that of cuBLAS."""
    return MOST_OF_CUBLAS * eager + UNIT


def list_excesses(rows: Iterable[dict]) -> dict[str, float]:
    """Those of compare_lines in which ours is above its limit."""
    found = {row["variant"]: row for row in rows}
    ratios = compare_lines(found.values())
    limits = {key: limit_line(found["eager"][key]) for key in ratios}
    return {key: ratio for key, ratio in ratios.items() if not found["ours"][key] <= limits[key]}


def divide(ours: float, eager: float) -> float:
    """No error is as much as no error."""
    if ours == eager:
        return 1.0
    return ours / eager if eager else math.inf


def limit_error(case: AccuracyCase, variant: str) -> float:
    """The largest relative L2 error that the variant may have in this case."""
    limit = LARGEST_ERROR_BF16X3 if variant == "bf16x3" else LARGEST_ERRORS[case.precision]
    return limit * max(1.0, math.sqrt(case.depth / LONGEST_SUM))


def check_errors(case: AccuracyCase, variant: str, errors: Errors) -> None:
    """Raises WrongResult for errors that the arithmetic of the variant does not explain."""
    limit = limit_error(case, variant)
    limit_norm = limit * AMPLIFICATION.get(case.model, 1)
    check_error(variant, errors.rel_err, limit_norm)
    if variant == "ours":
        limit_each = bound_error(case.depth, case.precision)  # as promised
    else:
        limit_each = limit * COMPONENTWISE_FACTOR
    check_error(f"{variant}: an output", errors.err_componentwise, limit_each)
    check_error(f"{variant}: a column", errors.err_column, limit_norm * LINE_FACTOR)
    check_error(f"{variant}: a row", errors.err_row, limit_norm * LINE_FACTOR)
