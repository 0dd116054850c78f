"""The cases of bench.training: whose step, in which precision, at which size.

Layers are the models of bench.models, trained, and model 12 at a smaller shape. Whole models have
M rows, N outputs and K inputs. Potentials have M atoms, and layers of N = K.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison
from examples.models import pinn

from ..cases.cases import MODELS as LAYERS
from . import models

ATOMS = 16384
DEPTHS = (3, 5, 8)
WIDTHS = (64, 128, 256, 512)

Compute = Callable[[torch.nn.Module, Tensor], Tensor]


def call(model: torch.nn.Module, x: Tensor) -> Tensor:
    return model(x)


def call_for_first(model: torch.nn.Module, x: Tensor) -> Tensor:
    """Of several results."""
    return model(x)[0]


def call_for_all(model: torch.nn.Module, x: Tensor) -> Tensor:
    """Several results of one shape, beside each other. What that takes is the same for all variants
    of a case."""
    return torch.cat(model(x), dim=-1)


def compute_forces(model: torch.nn.Module, x: Tensor) -> Tensor:
    """The slope of the energy down the features, of which the positions would be one product
    away."""
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return -slope


class StepModel(NamedTuple):
    word: str  # by which --models knows it
    kind: str  # one of KINDS
    shapes: Sequence[tuple[int, int, int]]  # (M, N, K)
    # (k, n) -> the plain model in float32 on the default device, in training
    build_plain: Callable[[int, int], torch.nn.Module]
    # (plain, precision) -> ours, sharing the parameters and the buffers
    fuse: Callable[[torch.nn.Module, str | None], torch.nn.Module] = models.replace_linears
    # (model, x) -> what a step differentiates
    compute: Compute = call
    outputs: int | None = None  # its columns; None: N
    # What a step gives: the gradients of the parameters and, with "x", of x; or what is computed.
    gives: str = "parameters"
    has_kinks: bool = False  # beside those of its modules, which are found

    @property
    def differentiates_inside(self) -> bool:
        return self.compute not in (call, call_for_first, call_for_all)


KINDS = ("layer", "whole", "potential")
# Each says what a step of a potential gives.
TASKS = {
    "energies": {"outputs": 1},
    "forces": {"compute": compute_forces, "gives": "itself"},
    "force_step": {"compute": compute_forces},
}


def _take_layer(name: str) -> StepModel:
    layer = LAYERS[name]
    shapes = [(layer.m, layer.n, layer.k)]
    if name == "12":
        shapes.append((4096, 1024, 1024))  # a layer of usual size
    return StepModel(name, "layer", shapes, layer.build_plain, layer.fuse, gives="x")


def _take_potential(task: str, depth: int) -> StepModel:
    shapes = [(ATOMS, width, width) for width in WIDTHS]

    def build(k: int, n: int) -> torch.nn.Module:
        return models.build_potential(depth, k)

    return StepModel(task, "potential", shapes, build, **TASKS[task])


def _take_whole(name: str, build, *shapes: tuple[int, int, int], **how) -> StepModel:
    return StepModel(name, "whole", shapes, build, **how)


# By the names that rows have.
MODELS = {name: _take_layer(name) for name in LAYERS}
MODELS |= {
    model.word: model
    for model in (
        # Gradients of x where layers that are trained lie in front.
        _take_whole("stylegan2_mapping", models.build_mapping, (16, 512, 512), (4096, 512, 512)),
        _take_whole("pointnet_head", models.build_pointnet_head, (32, 40, 1024), gives="x"),
        _take_whole("tabular_resnet", models.build_tabular_resnet, (1024, 7, 54)),
        _take_whole("dlrm_top", models.build_dlrm_top, (2048, 1, 479), gives="x"),
        _take_whole("pinn", pinn.build_pinn, (10000, 1, 2), compute=pinn.compute_residual),
        _take_whole("vit_mlp", models.build_vit_mlp, (3152, 768, 768), gives="x"),
    )
}
MODELS |= {f"{task}_{depth}": _take_potential(task, depth) for task in TASKS for depth in DEPTHS}
WORDS = tuple(dict.fromkeys(model.word for model in MODELS.values()))

PRECISIONS = ("ieee", "tf32", "bf16", "fp16")
# Without --precisions. What is small is rarely trained in all of them.
DEFAULT_PRECISIONS = {
    "layer": PRECISIONS,
    "whole": ("ieee", "tf32", "bf16"),
    "potential": ("ieee", "tf32"),
}

VARIANTS = (
    "ours",
    "ours_compile",
    "ours_compile_graphs",
    "ours_graphs",
    "eager",
    "compile",
    "compile_graphs",
    "bare_products",
)
COMPILED = ("ours_compile", "ours_compile_graphs", "compile", "compile_graphs")
# Without --variants only where a model has more than layers: a graph of a layer is that of its
# kernels, whoever captures it.
OF_WHOLE = "ours_compile_graphs"
# Without --variants potentials are compiled at this depth and width only: to compile takes longer
# than all that is timed.
COMPILED_DEPTH, COMPILED_WIDTH = 5, 128


class StepCase(NamedTuple):
    model: str
    precision: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.model}, {self.precision}, M={self.m} N={self.n} K={self.k}"

    def describe(self, suite: str, weight: str = "new") -> dict:
        """The part of a row that all variants share."""
        words = {"suite": suite, "model": self.model, "mode": "train", "precision": self.precision}
        shape = {"M": self.m, "N": self.n, "K": self.k}
        return {**words, **shape, "weight": weight, "grad": True}


def list_step_cases(words: Sequence[str], precisions: Sequence[str] = ()) -> list[StepCase]:
    """By kind and precision, what matters most first: a budget may end before the last."""
    return [
        StepCase(name, precision, *shape)
        for kind in KINDS
        for precision in PRECISIONS
        if precision in (precisions or DEFAULT_PRECISIONS[kind])
        for name, model in MODELS.items()
        if model.kind == kind and model.word in words
        for shape in model.shapes
    ]


def list_planned(variants: Sequence[str], case: StepCase) -> list[str]:
    """The variants that the case has; none named: those that are timed by default."""
    model, names = MODELS[case.model], list(variants or VARIANTS)
    if model.kind != "layer":
        names = [name for name in names if name != "bare_products"]
    if model.kind != "whole" and not variants:
        names.remove(OF_WHOLE)
    is_compiled = (case.model.endswith(f"_{COMPILED_DEPTH}"), case.n) == (True, COMPILED_WIDTH)
    if model.kind == "potential" and not variants and not is_compiled:
        names = [name for name in names if name not in COMPILED]
    return names


class StepProblem(NamedTuple):
    """What the variants of a case work on."""

    case: StepCase
    model: StepModel
    plain: torch.nn.Module
    x: Tensor
    grad: Tensor  # the gradient of the loss in what is computed

    @property
    def setting(self) -> str:
        """What PyTorch's fp32 products are set to, and what ours are told."""
        return comparison.PRECISIONS[self.case.precision].setting

    @property
    def loss_scale(self) -> float:
        """By how much `grad` is larger than drawn."""
        if not any(isinstance(module, torch.nn.Softmax) for module in self.plain.modules()):
            return 1.0
        # Its outputs are about 1 / N: fp16 would lose what comes back through them. A power of two
        # rounds nothing.
        return 2.0 ** round(math.log2(self.case.n))

    def list_asked(self) -> dict[str, Tensor]:
        """Whose gradients a step gives."""
        if self.model.gives == "itself":
            return {}
        asked = {"x": self.x} if self.model.gives == "x" else {}
        return asked | dict(self.plain.named_parameters())

    def fork(self) -> "StepProblem":
        """The problem again, with statistics and leaves of its own over the same memory: a write to
        one parameter is counted by all, and a captured step shares no node with another one."""
        parameters = {id(p): torch.nn.Parameter(p.detach()) for p in self.plain.parameters()}
        x = self.x.detach().requires_grad_(self.x.requires_grad)
        return self._replace(plain=copy.deepcopy(self.plain, parameters), x=x)


def build_step_problem(case: StepCase, device: str) -> StepProblem:
    """The same numbers in every precision, but for their rounding; 16 bits are the dtype of the
    whole model, its x and its gradients."""
    model, dtype = MODELS[case.model], comparison.PRECISIONS[case.precision].dtype
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = model.build_plain(case.k, case.n)
        if model.kind == "layer":
            x = torch.rand(case.m, case.k)  # as bench.models has them
        else:
            models.draw_weights(plain)
            x = torch.randn(case.m, case.k)
        grad = torch.randn(case.m, model.outputs or case.n)
    x = x.to(dtype).requires_grad_(model.gives == "x" or model.differentiates_inside)
    problem = StepProblem(case, model, plain.to(dtype).train(), x, grad)
    return problem._replace(grad=(problem.loss_scale * grad).to(dtype))
