"""The errors of a product against float64, and those that no variant may exceed."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison
from cutlass_fused.precision import bound_error

from ..cases.accuracy_inputs import REMAINDER
from ..cases.cases import Case
from .checking import LARGEST_ERRORS, check_error

# Its numbers have 16 bits where fp32 has 24, and nothing promotes its sums over a long K.
LARGEST_ERROR_BF16X3 = 1e-3

# LARGEST_ERRORS are of sums over so many terms. Rounding errors of longer ones add up as the root.
LONGEST_SUM = 8192
# The relative errors of cancelling inputs are those of their terms, beside so much less.
AMPLIFICATION = {"cancelling": 2 / REMAINDER}
# The worst of all outputs may err by so many times more.
COMPONENTWISE_FACTOR = 10


class ProductTruth(NamedTuple):
    y: Tensor  # x @ weight.T
    size: Tensor  # |x| @ |weight|.T: what rounding errors are proportional to


class Errors(NamedTuple):
    rel_err: float  # relative L2 error
    # Over the outputs, of |error| / (|x| @ |weight|.T). The median is the lower of the middle two.
    err_median: float
    err_componentwise: float  # the largest


def compute_product_truth(x: Tensor, weight: Tensor) -> ProductTruth:
    """In float64."""
    x, weight = x.double(), weight.double()
    return ProductTruth(torch.mm(x, weight.T), torch.mm(x.abs(), weight.abs().T))


def compute_errors(y: Tensor, truth: ProductTruth) -> Errors:
    """NaN where any of y is NaN; infinite where an output without terms is not zero."""
    error = (y.double() - truth.y).abs_()
    # An exact zero of terms that are all zero has no error, and not 0 / 0.
    parts = torch.where(error == 0, error, error / truth.size)
    relative = comparison.compute_error(y, truth.y)
    return Errors(relative, parts.median().item(), parts.max().item())


def limit_error(case: Case, variant: str) -> float:
    """The largest relative L2 error that the variant may have in this case."""
    limit = LARGEST_ERROR_BF16X3 if variant == "bf16x3" else LARGEST_ERRORS[case.precision]
    return limit * max(1.0, math.sqrt(case.k / LONGEST_SUM))


def check_errors(case: Case, variant: str, errors: Errors) -> None:
    """Raises WrongResult for errors that the arithmetic of the variant does not explain."""
    limit = limit_error(case, variant)
    check_error(variant, errors.rel_err, limit * AMPLIFICATION.get(case.model, 1))
    if variant == "ours":
        limit_each = bound_error(case.k, case.precision)  # as promised
    else:
        limit_each = limit * COMPONENTWISE_FACTOR
    check_error(f"{variant}: an output", errors.err_componentwise, limit_each)
