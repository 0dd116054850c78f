"""The cases of bench.end_to_end: which model, in which pass and precision, of how many rows."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

import cutlass_fused
from cutlass_fused import comparison
from examples import models
from examples.models import EXAMPLES, pinn, potential

from ..steps.cases import Compute, StepModel, StepProblem, call, call_for_first
from ..steps.models import draw_weights

PASSES = ("inference", "step")
MODES = {"inference": "eval", "step": "train"}
PRECISIONS = ("ieee", "tf32", "bf16")
BATCHES = (1, 16, 256, 4096, 16384)
BACKEND = "cutlass_fused"  # of torch.compile

OF_BACKEND = ("ours_compile", "ours_compile_graphs")
VARIANTS = ("ours", *OF_BACKEND, "ours_graphs", "eager", "compile", "compile_graphs")


class RealModel(NamedTuple):
    n: int  # outputs
    k: int  # inputs of the first layer
    # What a pass computes. Where it is no mere call it takes gradients inside.
    inference: Compute = call
    step: Compute = call
    gives: str = "parameters"  # a step's gradients, as StepModel says
    # (dropout) -> the plain model; by default the example, which has none
    build: Callable[[float], torch.nn.Module] | None = None
    # The dtypes of x and of the layers where they are not that of the precision.
    x_dtype: torch.dtype | None = None
    layers_dtype: torch.dtype | None = None


FP32 = torch.float32
# Gradients of x where layers that are trained lie in front.
MODELS = {
    "stylegan2_mapping": RealModel(512, 512),
    "pointnet_head": RealModel(
        *(40, 1024), gives="x", build=lambda p: models.build_pointnet_head(dropout=p)
    ),
    "tabular_resnet": RealModel(
        *(7, 54), build=lambda p: models.build_tabular_resnet(dropout=p)
    ),
    "vit_mlp": RealModel(
        *(768, 768), gives="x", build=lambda p: models.build_vit_mlp(dropout=p)
    ),
    "dlrm_top": RealModel(1, 479, gives="x"),
    "pinn": RealModel(1, 2, step=pinn.compute_residual),
    # Lengths, and so forces, are in fp32.
    "potential": RealModel(
        *(1, 64, potential.compute_forces, potential.compute_trained_forces), x_dtype=FP32
    ),
    # So is the head of a model in 16 bits.
    "moe_router": RealModel(
        *(64, 2048, call_for_first, call_for_first, "x"), layers_dtype=FP32
    ),
}  # fmt: skip


class RealCase(NamedTuple):
    model: str
    which: str  # one of PASSES
    precision: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        shape = f"M={self.m} N={self.n} K={self.k}"
        return f"{self.model}, {self.which}, {self.precision}, {shape}"

    @property
    def takes_gradients(self) -> bool:
        return self.which == "step" or _make_step_model(self).differentiates_inside

    def describe(self, suite: str, weight: str = "") -> dict:
        """The part of a row that all variants share. Weights are new in a step and kept in
        inference, so that a row need not say it."""
        mode = MODES[self.which]
        words = {"suite": suite, "model": self.model, "mode": mode, "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k}
        return {**words, **shape, "grad": self.takes_gradients}


def list_cases(
    names: Sequence[str] = tuple(MODELS),
    passes: Sequence[str] = PASSES,
    precisions: Sequence[str] = PRECISIONS,
    batches: Sequence[int] = BATCHES,
) -> list[RealCase]:
    """Those of one model and pass follow each other."""
    return [
        RealCase(name, which, precision, m, MODELS[name].n, MODELS[name].k)
        for which in passes
        for name in names
        for precision in precisions
        for m in batches
        if m > 1 or which == "inference" or not has_batch_norm(name)
    ]


@functools.cache
def has_batch_norm(name: str) -> bool:
    """It refuses to be trained on one row."""
    with comparison.keep_seed("cpu"):
        modules = list(EXAMPLES[name].build().modules())
    return any(isinstance(module, torch.nn.BatchNorm1d) for module in modules)


def has_backend() -> bool:
    return BACKEND in torch._dynamo.list_backends()


def list_variants(variants: Sequence[str], case: RealCase) -> list[str]:
    """What is timed in a case."""
    left_out = () if has_backend() else OF_BACKEND
    return [name for name in variants if name not in left_out]


def fuse(plain: torch.nn.Module, precision: str | None) -> torch.nn.Module:
    """In place, as users call it."""
    cutlass_fused.fuse(plain, precision=precision)
    return plain


def _make_step_model(case: RealCase) -> StepModel:
    model = MODELS[case.model]
    is_step = case.which == "step"

    def build(k: int, n: int) -> torch.nn.Module:
        if model.build is None:
            return EXAMPLES[case.model].build()
        # Dropout takes part in inference, where it does nothing, and in no step: two calls differ.
        return model.build(0.0) if is_step else EXAMPLES[case.model].build()

    compute = model.step if is_step else model.inference
    gives = model.gives if is_step else "itself"
    return StepModel(case.model, "whole", (), build, fuse, compute, gives=gives)


def build_problem(case: RealCase, device: str) -> StepProblem:
    """The same numbers in every precision, but for their rounding."""
    real, model = MODELS[case.model], _make_step_model(case)
    dtype = comparison.PRECISIONS[case.precision].dtype
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = model.build_plain(case.k, case.n)
        draw_weights(plain)
        draw_statistics(plain)
        x = EXAMPLES[case.model].draw(case.m)
        needs_grad = model.gives == "x" or model.differentiates_inside
        x = x.to(real.x_dtype or dtype).requires_grad_(needs_grad)
        plain = plain.to(real.layers_dtype or dtype).eval()
        with torch.enable_grad():
            y = model.compute(plain, x).detach()
        grad = torch.randn(y.shape).to(y.dtype)
    return StepProblem(case, model, plain.train(case.which == "step"), x, grad)


def draw_statistics(plain: torch.nn.Module) -> None:
    """Those of a batch norm that has been trained: of its own they would do nothing."""
    for module in plain.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            torch.nn.init.normal_(module.running_mean, std=0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.5)
