"""The variants: ours, and what else computes the same model in the same precision."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutlass_fused import comparison
from cutlass_fused.weights import splits

from ..measure.checking import check_written, measure_error, prepare_each
from . import cudnn_graph
from .cases import Case, Problem, Run, find_model

# The cuBLAS product without bias or tail: what the model would take if its tail cost nothing.
PRODUCT = "bare_product"

ALL_ROWS = slice(None)


def build_ours(problem: Problem) -> Run:
    return functools.partial(problem.model.fuse(problem.plain, problem.setting), problem.x)


def build_uncached(problem: Problem) -> Run:
    run = build_ours(problem)

    def run_uncached() -> Tensor:
        with splits.split_in_every_call():
            return run()

    return run_uncached


def build_sm80(problem: Problem) -> Run:
    run, force = build_ours(problem), torch.ops.cutlass_fused.force_tile

    def run_sm80() -> Tensor:
        force("sm80")
        try:
            return run()
        finally:
            force("")

    return run_sm80


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


def build_folded(problem: Problem) -> Run:
    return functools.partial(problem.model.fold(problem.plain), problem.x)


# Each is given a problem of its own, and may move its running statistics only when it is run.
VARIANTS: dict[str, Callable[[Problem], Run]] = {
    "ours": build_ours,
    "ours_sm80": build_sm80,
    "ours_uncached": build_uncached,
    "eager": build_eager,
    "compile": build_compiled,
    # Without CUDA graphs, which no other variant uses here.
    "max_autotune": functools.partial(build_compiled, mode="max-autotune-no-cudagraphs"),
    "cudnn": build_cudnn,
    "folded": build_folded,
    PRODUCT: build_product,
}


def has_sm90_kernels() -> bool:
    """Whether this machine's GPU runs our SM90 kernels."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def find_obstacle(variant: str, case: Case) -> str | None:
    """Why this machine cannot run the variant, or the case has no such variant."""
    model = find_model(case.model)
    if variant == "ours_uncached" and case.precision not in ("ieee", "tf32"):
        return "16-bit weights are multiplied as they are"
    if variant == "ours_sm80" and not has_sm90_kernels():
        return "ours are those kernels"
    if variant == "folded":
        if model.fold is None:
            return f"model {case.model} has no batch norm to fold"
        return None if case.mode == "eval" else "the statistics of a batch cannot be folded"
    if variant != "cudnn":
        return None
    if model.build_cudnn is None:
        return f"cuDNN has no graph of model {case.model}"
    if model.fold is not None and case.mode == "train":
        return "cuDNN has no graph of batch statistics behind a product"
    if case.precision == "ieee":
        return "cuDNN's fused products of fp32 inputs are TF32"
    return cudnn_graph.find_obstacle()


def list_possible(variants: Sequence[str], case: Case) -> list[str]:
    """The variants that can be had."""
    return [name for name in variants if find_obstacle(name, case) is None]


def tell_obstacles(variants: Sequence[str], case: Case) -> None:
    for name in variants:
        if obstacle := find_obstacle(name, case):
            print(f"  {name}: skipped: {obstacle}")


def prepare_variants(
    problem: Problem,
    variants: Sequence[str],
    capture: Callable[[Run], Run] = lambda run: run,
    rows: slice | Tensor = ALL_ROWS,
) -> tuple[dict[str, Run], dict[str, float]]:
    """Runs and errors, as `prepare_each` says. Each variant has its own running statistics.

    Args:
        capture: makes of a call what is checked and timed; it may call it before.
        rows: those of x and y that are checked. Where the rows depend on each other, all.
    """
    sample = problem._replace(x=problem.x[rows])
    truth = comparison.compute_truth(sample.plain, sample.x)

    def prepare(name: str) -> tuple[Run, float]:
        own = problem.fork()
        run = capture(VARIANTS[name](own))

        def take_rows() -> Tensor:
            return check_written(name, run())[rows]

        if name == PRODUCT:
            return run, measure_product_error(sample, take_rows)
        return run, measure_error(name, take_rows, own.plain, truth, problem.case.precision)

    return prepare_each(variants, prepare)


def measure_product_error(problem: Problem, run: Run) -> float:
    gemm = problem.plain.gemm
    truth = comparison.Truth(problem.x.double() @ gemm.weight.double().T, {})
    return measure_error(PRODUCT, run, gemm, truth, problem.case.precision)
