"""The functions with a batch norm, each beside its plain expression, called in one way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import calls
import torch
from plain import (
    run_plain_batch_norm,
    run_plain_batch_norm_softmax,
    run_plain_scale_batch_norm,
)
from torch.nn import functional as F

from cutlass_fused import functional

M, N, K = 5, 4, 3
EPS, MOMENTUM = 1e-2, 0.3


@dataclasses.dataclass(frozen=True)
class NormFunction:
    ours: Callable
    plain: Callable
    names: tuple[str, ...]  # of the leaves in front of the statistics
    ops: tuple[str, str]  # in training and in eval

    def op(self, training: bool) -> str:
        """The op that a call without gradients is."""
        return self.ops[0 if training else 1]

    @property
    def has_product(self) -> bool:
        return "weight" in self.names

    def __str__(self) -> str:
        return self.ours.__name__


_PRODUCT = ("x", "weight", "bias", "scale")
FUSED = (
    NormFunction(
        functional.linear_scale_batch_norm,
        run_plain_scale_batch_norm,
        _PRODUCT,
        (calls.SCALE_NORM_TRAIN, calls.BATCH_NORM),
    ),
    NormFunction(
        functional.linear_batch_norm_scale_softmax,
        run_plain_batch_norm_softmax,
        _PRODUCT,
        (calls.NORM_SOFTMAX_TRAIN, calls.NORM_SOFTMAX),
    ),
)
BATCH_NORM = NormFunction(
    functional.batch_norm, run_plain_batch_norm, ("x",), (calls.NORM_TRAIN, calls.NORM)
)
FUNCTIONS = (*FUSED, BATCH_NORM)

SCALES = {
    "None": lambda dtype: None,
    "number": lambda dtype: -1.5,
    "0-dim": lambda dtype: torch.tensor(-1.25, dtype=dtype),
    "(1,)": lambda dtype: torch.tensor([1.25], dtype=dtype),
    "(N,)": lambda dtype: torch.tensor([0.5, -1.5, 2.0, -0.25], dtype=dtype),
    "some zero": lambda dtype: torch.tensor([0.0, -1.5, 1e-4, -0.0], dtype=dtype),
    "zero": lambda dtype: torch.zeros((), dtype=dtype),
}


def make_leaves(
    function: NormFunction,
    dtype=torch.float64,
    *,
    m=M,
    vectors=None,
    scale="(N,)",
    affine=True,
    bias=True,
) -> dict[str, torch.Tensor | float | None]:
    """The arguments that may ask for a gradient, by name; tensors among them do."""
    vectors = vectors or dtype
    leaves = {"x": torch.randn(m, K if function.has_product else N).to(dtype)}
    if function.has_product:
        leaves["weight"] = torch.randn(N, K).to(dtype)
        leaves["bias"] = torch.randn(N).to(vectors) if bias else None
        leaves["scale"] = SCALES[scale](vectors)
    leaves["gamma"] = (torch.rand(N) + 0.5).to(vectors) if affine else None
    leaves["beta"] = torch.randn(N).to(vectors) if affine else None
    for leaf in leaves.values():
        if isinstance(leaf, torch.Tensor):
            leaf.requires_grad_()
    return leaves


def make_statistics(dtype=torch.float64):
    return torch.randn(N).to(dtype), (torch.rand(N) + 0.5).to(dtype)


def call(run, leaves, statistics, training, momentum=MOMENTUM, eps=EPS, **options):
    """run(...) on these leaves; the running statistics are updated."""
    leaves = dict(leaves)
    gamma, beta = leaves.pop("gamma"), leaves.pop("beta")
    return run(*leaves.values(), *statistics, gamma, beta, training, momentum, eps, **options)


def list_asking(leaves):
    return [t for t in leaves.values() if isinstance(t, torch.Tensor) and t.requires_grad]


def differentiate(run, leaves, training, statistics=None, grad_y=None, **options):
    """y, the gradients of the leaves that ask for one, and the statistics behind it."""
    if statistics is None:
        torch.manual_seed(1)
        statistics = make_statistics(next(iter(leaves.values())).dtype)
    y = call(run, leaves, statistics, training, **options)
    if grad_y is None:
        torch.manual_seed(2)
        grad_y = torch.randn(y.shape, dtype=torch.float64)
    grads = torch.autograd.grad(y, list_asking(leaves), grad_y.to(y.dtype))
    return y, grads, statistics


def compare_with_plain(function, leaves, training, tolerance=1e-11, **options):
    ours = differentiate(function.ours, leaves, training, **options)
    plain = differentiate(function.plain, leaves, training, **options)
    torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance)


def run_eager(function, leaves, statistics, training, eps=EPS):
    """What a user writes, with the ops of PyTorch."""
    z = leaves["x"]
    gamma, beta = leaves["gamma"], leaves["beta"]
    if function.has_product:
        z = F.linear(z, leaves["weight"], leaves["bias"])
    scale = leaves.get("scale")
    softmax = function is FUSED[1]
    if scale is not None and not softmax:
        z = z * scale
    y = F.batch_norm(z, *statistics, gamma, beta, training, MOMENTUM, eps)
    if not softmax:
        return y
    return torch.softmax(y if scale is None else scale * y, 1)
