"""The variants of a call: ours, what else computes the same, and what they are compared with."""

import copy
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutlass_fused import comparison, functional
from cutlass_fused.comparison.models import MULTIPLIER, NEGATIVE_SLOPE

from ..cases.peers import build_compiled, build_eager, build_product
from ..measure.checking import LARGEST_ERRORS, check_error, prepare_each
from .cases import Problem
from .programs import Ours, Result, identity

Run = Callable[[], Result]

# So large that neither its launch nor the caches count.
COPY_BYTES = 2**28
COPY = "copy"


def build_ours(problem: Problem) -> Run:
    return functools.partial(Ours(problem.plain, problem.case.setting), problem.x)


def build_identity(problem: Problem) -> Run:
    """The product by the same kernels, with nothing behind it."""
    weight = problem.plain.gemm.weight
    return functools.partial(identity, problem.x, weight, precision=problem.case.setting)


def build_compiled_kernel(problem: Problem) -> Run:
    """What the library has compiled."""
    gemm = problem.plain.gemm
    return functools.partial(
        functional.linear_scale_leaky_relu,
        *(problem.x, gemm.weight, gemm.bias, MULTIPLIER, NEGATIVE_SLOPE),
        precision=problem.case.setting,
    )


def build_copy(problem: Problem) -> Run:
    """What memory does at best with an operand of M x N."""
    source = torch.ones(COPY_BYTES, dtype=torch.int8, device=problem.x.device)
    return functools.partial(torch.empty_like(source).copy_, source)


BUILD: dict[str, Callable[[Problem], Run]] = {
    "ours": build_ours,
    "identity": build_identity,
    "compiled": build_compiled_kernel,
    "eager": build_eager,
    "compile": build_compiled,
    # Without CUDA graphs, which no other variant uses here.
    "max_autotune": functools.partial(build_compiled, mode="max-autotune-no-cudagraphs"),
    "bare_product": build_product,
    COPY: build_copy,
}
# What is computed by those that do not compute the program.
PRODUCTS = ("identity", "bare_product")


def list_results(y: Result) -> tuple[Tensor, ...]:
    return y if isinstance(y, tuple) else (y,)


def compute_truth(problem: Problem, is_product: bool) -> tuple[Tensor, ...]:
    """In float64: of the program, or of the product alone."""
    if is_product:
        return (problem.x.double() @ problem.plain.gemm.weight.double().T,)
    return list_results(comparison.compute_truth(problem.plain, problem.x).y)


def measure_error(name: str, y: Result, truth: Sequence[Tensor], precision: str) -> float:
    """The relative L2 error of the worst result; raises WrongResult if one is too large."""
    found = list_results(y)
    if len(found) != len(truth):
        raise TypeError(f"{name} has {len(found)} results, not {len(truth)}")
    errors = [comparison.compute_error(*pair) for pair in zip(found, truth, strict=True)]
    # NaN is no error that is small enough, and max() may lose it.
    return max(check_error(name, error, LARGEST_ERRORS[precision]) for error in errors)


def fork(problem: Problem) -> Problem:
    """With a module of its own: torch.compile keeps what it compiled with the module."""
    parameters = {id(p): p for p in problem.plain.parameters()}
    return problem._replace(plain=copy.deepcopy(problem.plain, parameters))


def prepare_variants(
    problem: Problem, names: Sequence[str], failures: dict[str, type[Exception]]
) -> tuple[dict[str, Run], dict[str, float]]:
    """Runs and errors, as `prepare_each` says."""
    find_truth = functools.cache(functools.partial(compute_truth, problem))

    def prepare(name: str) -> tuple[Run, float]:
        run = BUILD[name](fork(problem))
        if name == COPY:
            return run, 0.0
        truth = find_truth(name in PRODUCTS)
        return run, measure_error(name, run(), truth, problem.case.precision)

    return prepare_each(names, prepare, failures)
