"""The gradients of every variant are held against float64 once, and against what eager and the
precision itself lose."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..measure.checking import LARGEST_ERRORS, check_error
from .cases import StepProblem
from .models import has_kinks
from .rounding import round_products
from .variants import PRODUCTS, build_products

# A variant may err so many times as much as eager does, or products in TF32 do that are exact but
# for it,
MOST_OF_EXPECTED = 4
# and eager so many times as much as a single product and its tail.
MOST_OF_PRODUCT = 10
# A few numbers may err much more, by luck.
FEW, MOST_BY_LUCK = 64, 10
# Of rows of so many features one element on the other side of a kink is all that may differ.
NARROW = 256
# A gradient so many times below the largest is zero, but for float64's own rounding.
ZERO = 1e-9

Gradients = dict[str, Tensor]
Change = Callable[[torch.nn.Module], object]


def compute_gradients(problem: StepProblem, change: Change = lambda plain: None) -> Gradients:
    """In float64, on the numbers that the given precision holds; less those that do not exist, as
    that of the last bias in forces. `change`: what is done to the model before."""
    plain = copy.deepcopy(problem.plain).double()
    change(plain)
    x = problem.x.detach().double().requires_grad_(problem.x.requires_grad)
    own = problem._replace(plain=plain, x=x)
    asked, y = own.list_asked(), problem.model.compute(plain, x)
    if not asked:
        return {"itself": y.detach()}
    found = torch.autograd.grad(y, list(asked.values()), problem.grad.double(), allow_unused=True)
    pairs = zip(asked, found, strict=True)
    return {name: gradient for name, gradient in pairs if gradient is not None}


def compute_products(problem: StepProblem) -> Gradients:
    """Those of `bare_products`."""
    plain = copy.deepcopy(problem.plain).double()
    own = problem._replace(plain=plain, x=problem.x.double(), grad=problem.grad.double())
    return dict(zip(("y", "x", "weight"), build_products(own)(), strict=True))


def compute_errors(found: Sequence[Tensor], truth: Gradients) -> dict[str, float]:
    """The relative L2 error of each. That of a gradient that is zero, as of a bias in front of
    batch norm, is relative to the largest root mean square of the others; where all are zero, any
    error is infinite."""
    sizes = {name: _find_size(gradient) for name, gradient in truth.items()}
    largest = max(sizes.values())
    errors = {}
    for gradient, (name, expected) in zip(found, truth.items(), strict=True):
        size = sizes[name] if sizes[name] > ZERO * largest else largest
        error = _find_size(gradient.double() - expected)
        errors[name] = error / size if size > 0 else math.inf if error else 0.0
    return errors


def _find_size(gradient: Tensor) -> float:
    """The root mean square."""
    return gradient.norm().item() / math.sqrt(gradient.numel())


def expect_errors(
    problem: StepProblem, eager: Sequence[Tensor], truth: Gradients
) -> dict[str, float]:
    """The errors of eager's gradients, or of a float64 model's that multiplies in TF32, where those
    are larger: cuBLAS may run a product of few rows in fp32, so that eager's signs at kinks are all
    those of float64, by a choice that TF32 does not promise."""
    errors = compute_errors(eager, truth)
    if problem.case.precision != "tf32":
        return errors
    rounded = compute_gradients(problem, round_products)
    own = compute_errors([rounded[name] for name in truth], truth)
    return {name: max(error, own[name]) for name, error in errors.items()}


def limit_of_product(problem: StepProblem, name: str, truth: Tensor) -> float:
    """What the gradient of this name may lose to one product, its tail, and what follows a sign."""
    limit = LARGEST_ERRORS[problem.case.precision]
    model = problem.model
    is_slope = name != "y" and (model.gives != "itself" or model.differentiates_inside)
    if is_slope and (model.has_kinks or has_kinks(problem.plain)):
        # The slope of an element so near to a kink that rounding takes it across is another one:
        # the share of these is that of the error, and the norm of what they do its root.
        limit = max(math.sqrt(limit), 2 / math.sqrt(problem.case.m * NARROW))
    return limit * (MOST_BY_LUCK if truth.numel() < FEW else 1)


def find_worst(
    problem: StepProblem,
    variant: str,
    found: Sequence[Tensor],
    truth: Gradients,
    expected: Mapping[str, float],
) -> float:
    """The largest error; raises WrongResult where one is above its limit. `expected`: those of
    expect_errors. Eager's are held against limits of their own."""
    errors = compute_errors(found, truth)
    for name, error in errors.items():
        limit = limit_of_product(problem, name, truth[name])
        if variant == "eager":
            limit *= MOST_OF_PRODUCT
        elif variant != PRODUCTS:
            limit = max(limit, MOST_OF_EXPECTED * expected[name])
        check_error(f"{variant}: the gradient of {name}", error, limit)
    return max(errors.values())
