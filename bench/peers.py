"""The variants: ours, and what else computes the same model in the same precision."""

import copy
import functools
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutlass_fused import demo

from . import cudnn_graph
from .cases import MODELS, Case, Problem

Run = Callable[[], Tensor]

# The cuBLAS product without bias or tail: what the model would take if its tail cost nothing.
PRODUCT = "bare_product"

# No variant may err more, or it does not compute this model, or not in this precision: these are a
# few times eager's own errors, less than what a wrong slope or a missing bias would do, and "ieee"
# lies far below the error of TF32.
LARGEST_ERRORS = {"ieee": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 2e-3}


class WrongResult(RuntimeError):
    """A variant errs more than its precision allows."""


def build_ours(problem: Problem) -> Run:
    return functools.partial(problem.model.fuse(problem.plain, problem.setting), problem.x)


def build_eager(problem: Problem) -> Run:
    return functools.partial(problem.plain, problem.x)


def build_compiled(problem: Problem, mode: str | None = None) -> Run:
    return functools.partial(torch.compile(problem.plain, mode=mode, dynamic=False), problem.x)


def build_product(problem: Problem) -> Run:
    x, weight = problem.x, problem.plain.gemm.weight
    out = x.new_empty(len(x), len(weight))
    return functools.partial(torch.mm, x, weight.T, out=out)


def build_cudnn(problem: Problem) -> Run:
    return problem.model.build_cudnn(problem.plain, problem.x)


VARIANTS: dict[str, Callable[[Problem], Run]] = {
    "ours": build_ours,
    "eager": build_eager,
    "compile": build_compiled,
    # Without CUDA graphs, which no other variant uses here.
    "max_autotune": functools.partial(build_compiled, mode="max-autotune-no-cudagraphs"),
    "cudnn": build_cudnn,
    PRODUCT: build_product,
}


def find_obstacle(variant: str, case: Case) -> str | None:
    """Why this machine cannot run the variant, or the case has no such variant."""
    if variant != "cudnn":
        return None
    if MODELS[case.model].build_cudnn is None:
        return f"cuDNN has no graph of model {case.model}"
    if case.precision == "ieee":
        return "cuDNN's fused products of fp32 inputs are TF32"
    return cudnn_graph.find_obstacle()


def compute_truth(module: torch.nn.Module, x: Tensor) -> Tensor:
    """The result of a plain module in float64, on the numbers that the precision holds."""
    return copy.deepcopy(module).double()(x.double())


def compute_variant_truth(problem: Problem, variant: str) -> Tensor:
    if variant == PRODUCT:
        return problem.x.double() @ problem.plain.gemm.weight.double().T
    return compute_truth(problem.plain, problem.x)


def measure_error(name: str, run: Run, truth: Tensor, precision: str) -> float:
    """The relative L2 error; raises WrongResult if it is too large to be this model's."""
    error, limit = demo.compute_error(run(), truth), LARGEST_ERRORS[precision]
    if not error <= limit:
        raise WrongResult(f"{name} has a relative error of {error:.2e}, above {limit:.0e}")
    return error


def prepare_variants(
    problem: Problem, variants: Sequence[str]
) -> tuple[dict[str, Run], dict[str, float]]:
    """What to run, and its error, for each variant that can be had; the others are told.

    Ours must run and be right: there the exception goes on to the caller.
    """
    runs, errors = {}, {}
    for name in variants:
        start = time.perf_counter()
        try:
            run = VARIANTS[name](problem)
            truth = compute_variant_truth(problem, name)
            errors[name] = measure_error(name, run, truth, problem.case.precision)
        except Exception as exception:
            if name.startswith("ours"):
                raise
            print(f"  {name}: skipped: {_shorten(exception)}", flush=True)
            continue
        runs[name] = run
        seconds = time.perf_counter() - start
        if seconds > 1:
            print(f"  {name}: prepared in {seconds:.0f} s", flush=True)
    return runs, errors


def _shorten(exception: Exception) -> str:
    """The first line: compilers and cuDNN append pages."""
    lines = str(exception).strip().splitlines() or ["without a message"]
    return f"{type(exception).__name__}: {lines[0][:200]}"
