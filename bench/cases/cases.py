"""The models that are timed, and the cases made of them: one model, mode, precision and shape."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison, nn
from cutlass_fused.comparison.models import MULTIPLIER, NEGATIVE_SLOPE

from . import cudnn_graph, folded

Run = Callable[[], Tensor]


class Model(NamedTuple):
    m: int
    n: int
    k: int
    # (k, n) -> the plain model in float32 on the default device, its product named `gemm`
    build_plain: Callable[[int, int], torch.nn.Module]
    # (plain, precision) -> ours, sharing the parameters and the buffers of the plain model
    fuse: Callable[[torch.nn.Module, str | None], torch.nn.Module]
    modes: Sequence[str] = ("train", "eval")
    # Both are None where the model has no such variant, and of use in eval only.
    # (plain, x) -> a function without arguments
    build_cudnn: Callable[[torch.nn.Module, Tensor], Run] | None = None
    # plain -> the plain model with its batch norm folded into the product
    fold: Callable[[torch.nn.Module], torch.nn.Module] | None = None


def build_cudnn_scale_leaky_relu(plain: torch.nn.Module, x: Tensor) -> Run:
    gemm = plain.gemm
    return cudnn_graph.build_scale_leaky_relu(x, gemm.weight, gemm.bias, MULTIPLIER, NEGATIVE_SLOPE)


def build_cudnn_scale_batch_norm(plain: torch.nn.Module, x: Tensor) -> Run:
    gemm = plain.gemm
    return cudnn_graph.build_scale_batch_norm(x, gemm.weight, gemm.bias, plain.scale, plain.bn)


def build_cudnn_linear(plain: torch.nn.Module, x: Tensor) -> Run:
    return cudnn_graph.build_linear(x, plain.gemm.weight, plain.gemm.bias)


class PlainLinear(torch.nn.Module):
    """A product and its bias, named as in the other models."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.gemm(x)


def take_model(number: str, shape: tuple[int, int, int], **variants) -> Model:
    """A model of the demo, at M, N, K = shape."""
    model = comparison.MODELS[number]
    return Model(*shape, model.build_plain, model.fuse, **variants)


MODELS = {
    # It has no statistics: both modes compute the same.
    "12": take_model("12", (1024, 8192, 8192), build_cudnn=build_cudnn_scale_leaky_relu),
    "33": take_model(
        "33",
        (1024, 8192, 8192),
        build_cudnn=build_cudnn_scale_batch_norm,
        fold=folded.fold_scale_batch_norm,
    ),
    "39": take_model(
        "33",
        (16384, 4096, 4096),
        build_cudnn=build_cudnn_scale_batch_norm,
        fold=folded.fold_scale_batch_norm,
    ),
    "84": take_model("84", (1024, 8192, 8192), fold=folded.fold_batch_norm_scale_softmax),
}
# What bench.sweep times at other shapes.
SWEEP_MODELS = {
    "12": MODELS["12"],
    "linear": Model(
        *(1024, 8192, 8192),
        PlainLinear,
        lambda plain, precision: nn.Linear.from_eager(plain.gemm, precision=precision),
        build_cudnn=build_cudnn_linear,
    ),
}


def find_model(name: str) -> Model:
    return MODELS[name] if name in MODELS else SWEEP_MODELS[name]


class Case(NamedTuple):
    model: str
    mode: str
    precision: str
    m: int
    n: int
    k: int  # 0 where there is no product

    def __str__(self) -> str:
        shape = f"M={self.m} N={self.n}" + (f" K={self.k}" if self.k else "")
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


def list_cases(
    models: Sequence[str], precisions: Sequence[str], modes: Sequence[str] = ("train", "eval")
) -> list[Case]:
    cases = []
    for name in models:
        model = MODELS[name]
        shape = model.m, model.n, model.k
        for mode in modes:
            if mode in model.modes:
                cases += [Case(name, mode, precision, *shape) for precision in precisions]
    return cases


class Problem(NamedTuple):
    """What a variant of a case works on."""

    case: Case
    model: Model  # or one of the layers, which is fused in the same way
    plain: torch.nn.Module
    x: Tensor

    @property
    def setting(self) -> str:
        """What PyTorch's fp32 products are set to, and what ours are told."""
        return comparison.PRECISIONS[self.case.precision].setting

    def fork(self) -> "Problem":
        """The problem again, with running statistics of its own."""
        return self._replace(plain=comparison.share_product(self.plain))


def build_problem(case: Case, device: str) -> Problem:
    """A problem of the same numbers in every precision, but for their rounding.

    In training the running statistics are those of a new batch norm; in eval they are those of
    this batch, as if training had gone on for long.
    """
    model, dtype = find_model(case.model), comparison.PRECISIONS[case.precision].dtype
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = model.build_plain(case.k, case.n)
        x = torch.rand(case.m, case.k)
    if case.mode == "eval":
        collect_statistics(plain, x)
    plain = plain.to(dtype).train(case.mode == "train")
    return Problem(case, model, plain, x.to(dtype))


def collect_statistics(plain: torch.nn.Module, x: Tensor) -> None:
    norms = [module for module in plain.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    if not norms:
        return
    momentum = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad(), comparison.set_matmul_precision("ieee"):
        plain.train()(x)
    for norm, value in zip(norms, momentum, strict=True):
        norm.momentum = value
