"""The cases of bench.tails: which small model, in which pass and precision, of how many rows."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from cutlass_fused import comparison

from ..end_to_end.cases import MODES, PASSES, fuse
from ..steps.cases import StepModel, StepProblem, call, call_for_all
from ..trust.paths import add_helpers

add_helpers()

import linear_tails  # noqa: E402

MODELS = linear_tails.CASES
K, N = 512, 768  # of a user's layers; 3 and 4 divide N, for the groups and windows of some tails
# What matters most comes first: a budget may end before the last.
ROWS = (1024, 16)
PRECISIONS = ("ieee", "bf16", "tf32")
VARIANTS = ("ours", "ours_graphs", "eager", "compile", "compile_graphs")


class TailCase(NamedTuple):
    model: str  # one of MODELS
    which: str  # one of PASSES
    precision: str
    m: int
    n: int = N
    k: int = K

    def __str__(self) -> str:
        shape = f"M={self.m} N={self.n} K={self.k}"
        return f'"{self.model}", {self.which}, {self.precision}, {shape}'

    def describe(self, suite: str, weight: str = "") -> dict:
        """The part of a row that all variants share. Weights are new in a step and kept in
        inference, so that a row need not say it."""
        mode = MODES[self.which]
        words = {"suite": suite, "model": self.model, "mode": mode, "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k}
        return words | shape | ({"grad": True} if self.which == "step" else {})


def list_cases(
    names: Sequence[str] = tuple(MODELS),
    passes: Sequence[str] = PASSES,
    precisions: Sequence[str] = PRECISIONS,
    rows: Sequence[int] = ROWS,
) -> list[TailCase]:
    return [
        TailCase(name, which, precision, m)
        for which in passes
        for m in rows
        for precision in precisions
        for name in names
        if which == "inference" or not has_dropout(name)
    ]


@contextlib.contextmanager
def resize(n: int, k: int) -> Iterator[None]:
    """The models that are built meanwhile are of these sizes; those of the tests are tiny."""
    before = linear_tails.N, linear_tails.K
    linear_tails.N, linear_tails.K = n, k
    try:
        yield
    finally:
        linear_tails.N, linear_tails.K = before


def build_plain(name: str, k: int, n: int) -> torch.nn.Module:
    """In float32 on the default device."""
    with resize(n, k):
        plain = MODELS[name].make()
    if isinstance(plain, linear_tails.OfMatrices):
        # Drawn with a deviation of 1, which is that of no layer that is trained: sums of so many
        # terms would be large, and rounding one takes it across the whole bend of a GELU.
        with torch.no_grad():
            plain.weight.mul_(k**-0.5)
    return plain


@functools.cache
def has_dropout(name: str) -> bool:
    """Then two steps differ; in inference it does nothing."""
    with comparison.keep_seed("cpu"):
        modules = list(MODELS[name].make().modules())
    return any(isinstance(module, torch.nn.Dropout) for module in modules)


def build_problem(case: TailCase, device: str) -> StepProblem:
    """The same numbers in every precision, but for their rounding."""
    dtype = comparison.PRECISIONS[case.precision].dtype
    build = functools.partial(build_plain, case.model)
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = build(case.k, case.n).to(dtype).eval()
        x = torch.randn(case.m, case.k).to(dtype)
        with torch.no_grad():
            y = plain(x)
        # A model has one result, or several of one shape.
        compute = call_for_all if isinstance(y, tuple) else call
        shape = compute(lambda x: y, x).shape
        grad = torch.randn(shape).to(dtype)
    is_step = case.which == "step"
    model = StepModel(
        *(case.model, "whole", (), build, fuse, compute),
        gives="parameters" if is_step else "itself",
        has_kinks=not MODELS[case.model].is_smooth,
    )
    return StepProblem(case, model, plain.train(is_step), x, grad)
