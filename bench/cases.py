"""The models that are timed, and the cases made of them: one model, mode, precision and shape."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import demo, nn

from . import cudnn_graph


class Model(NamedTuple):
    m: int
    n: int
    k: int
    modes: Sequence[str]
    # (k, n) -> the plain model in float32 on the default device, its product named `gemm`
    build_plain: Callable[[int, int], torch.nn.Module]
    # (plain, precision) -> ours, sharing the parameters of the plain model
    fuse: Callable[[torch.nn.Module, str | None], torch.nn.Module]
    # (plain, x) -> a function without arguments; None where cuDNN has no graph of this model
    build_cudnn: Callable[[torch.nn.Module, Tensor], Callable[[], Tensor]] | None


def fuse_scale_leaky_relu(plain: demo.PlainModel, precision: str | None) -> torch.nn.Module:
    return nn.LinearScaleLeakyReLU.from_eager(
        plain.gemm, demo.MULTIPLIER, plain.activation, precision=precision
    )


def build_cudnn_scale_leaky_relu(plain: demo.PlainModel, x: Tensor) -> Callable[[], Tensor]:
    gemm = plain.gemm
    return cudnn_graph.build_scale_leaky_relu(
        x, gemm.weight, gemm.bias, demo.MULTIPLIER, demo.NEGATIVE_SLOPE
    )


MODELS = {
    "12": Model(
        m=1024,
        n=8192,
        k=8192,
        # It has no statistics: training computes the same.
        modes=["eval"],
        build_plain=demo.PlainModel,
        fuse=fuse_scale_leaky_relu,
        build_cudnn=build_cudnn_scale_leaky_relu,
    ),
}


class Case(NamedTuple):
    model: str
    mode: str
    precision: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        shape = f"M={self.m} N={self.n} K={self.k}"
        return f"model {self.model}, {self.mode}, {self.precision}, {shape}"

    def describe(self, suite: str) -> dict:
        """The part of a row that all variants share."""
        return {
            "suite": suite,
            "model": self.model,
            "mode": self.mode,
            "precision": self.precision,
            "M": self.m,
            "N": self.n,
            "K": self.k,
        }


def list_cases(models: Sequence[str], precisions: Sequence[str]) -> list[Case]:
    cases = []
    for name in models:
        model = MODELS[name]
        for mode in model.modes:
            shape = model.m, model.n, model.k
            cases += [Case(name, mode, precision, *shape) for precision in precisions]
    return cases


class Problem(NamedTuple):
    """What all variants of a case work on."""

    case: Case
    plain: torch.nn.Module
    x: Tensor

    @property
    def model(self) -> Model:
        return MODELS[self.case.model]

    @property
    def setting(self) -> str:
        """What PyTorch's fp32 products are set to, and what ours are told."""
        return demo.PRECISIONS[self.case.precision].setting


def build_problem(case: Case, device: str) -> Problem:
    """The same numbers in every precision, but for their rounding."""
    dtype = demo.PRECISIONS[case.precision].dtype
    with demo.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = MODELS[case.model].build_plain(case.k, case.n).to(dtype)
        x = torch.rand(case.m, case.k).to(dtype)
    return Problem(case, plain.train(case.mode == "train"), x)
