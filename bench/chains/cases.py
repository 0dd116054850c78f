"""The cases of bench.chains: how wide its layers are, in which precision, of how many rows."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

import cutlass_fused
from cutlass_fused import comparison
from examples.models.parts import build_mlp

from ..steps.cases import StepModel, StepProblem
from ..steps.models import draw_weights
from ..steps.variants import FORWARDS, build_forward, build_step

DEPTH = 8
WIDTHS = (64, 128, 256, 512)
ROWS = (1, 16, 256)
PRECISIONS = ("ieee", "tf32", "bf16")
REPLAYS = "ours_replays"
VARIANTS = ("ours", REPLAYS, "ours_graphs", "eager", "compile", "compile_graphs")


class ChainCase(NamedTuple):
    precision: str
    m: int
    width: int

    def __str__(self) -> str:
        return f"{DEPTH} layers, {self.precision}, M={self.m} N=K={self.width}"

    def describe(self, suite: str, weight: str = "kept") -> dict:
        """The part of a row that all variants share. Weights are kept, so that no row says it."""
        words = {"suite": suite, "model": "mlp", "mode": "eval", "precision": self.precision}
        return {**words, "M": self.m, "N": self.width, "K": self.width}


def list_cases(
    precisions: Sequence[str] = PRECISIONS,
    widths: Sequence[int] = WIDTHS,
    rows: Sequence[int] = ROWS,
) -> list[ChainCase]:
    return [ChainCase(name, m, width) for name in precisions for width in widths for m in rows]


def fuse(plain: torch.nn.Module, precision: str | None, graphs: bool = False) -> torch.nn.Module:
    """In place, as users call it."""
    cutlass_fused.fuse(plain, precision=precision, graphs=graphs)
    return plain


def build_problem(case: ChainCase, device: str) -> StepProblem:
    """The same numbers in every precision, but for their rounding."""
    dtype = comparison.PRECISIONS[case.precision].dtype

    def build(k: int, n: int) -> torch.nn.Module:
        return build_mlp((k,) * (DEPTH + 1), torch.nn.ReLU)

    model = StepModel("mlp", "whole", (), build, fuse, gives="itself")
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = build(case.width, case.width)
        draw_weights(plain)
        x = torch.randn(case.m, case.width).to(dtype)
        grad = torch.zeros_like(x)  # of a step, of which there is none
    return StepProblem(case, model, plain.to(dtype).eval(), x, grad)


def _take_replays(problem: StepProblem) -> torch.nn.Module:
    return fuse(problem.plain, problem.setting, graphs=True)


def _take_prepared(problem: StepProblem) -> torch.nn.Module:
    """Its fp32 weights are split before the capture, as a server does."""
    return cutlass_fused.prepare(fuse(problem.plain, problem.setting))


# `ours_graphs` is captured by who prepares it, and `ours_replays` captures itself.
OF_CHAINS = FORWARDS | {
    REPLAYS: functools.partial(build_forward, _take_replays),
    "ours_graphs": functools.partial(build_forward, _take_prepared),
}
build = functools.partial(build_step, forwards=OF_CHAINS)
