"""Every function of this package beside its plain expression, over the options that its derivatives
depend on: each is called with a dictionary of leaves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from norm_functions import BATCH_NORM, FUSED, call, make_statistics
from norm_functions import make_leaves as make_norm_leaves
from plain import run_plain

from cutlass_fused import functional

M, N, K = 3, 4, 5


@dataclasses.dataclass(frozen=True)
class Differentiated:
    """ours and plain: y of leaves; make: the leaves by name, which ask for a gradient."""

    name: str
    ours: Callable
    plain: Callable
    make: Callable

    def __post_init__(self):
        assert self.names  # now: within a transform nothing can be drawn

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.make())

    def run(self, *tensors):
        return self.ours(dict(zip(self.names, tensors, strict=True)))

    def run_plain(self, *tensors):
        return self.plain(dict(zip(self.names, tensors, strict=True)))


def draw(*names, leading=(M,)) -> dict[str, torch.Tensor]:
    sizes = {"x": (*leading, K), "weight": (N, K), "bias": (N,), "scale": (N,)}
    sizes |= {"one": (1,), "scalar": ()}
    leaves = {}
    for name in names:
        leaf = torch.randn(sizes[name], dtype=torch.float64, requires_grad=True)
        leaves["scale" if name in ("one", "scalar") else name] = leaf
    return leaves


def list_linear():
    for leading in ((), (M,), (2, M)):
        for names in (("x", "weight", "bias"), ("x", "weight")):
            yield Differentiated(
                f"linear {leading} {len(names)}",
                lambda leaves: functional.linear(**leaves),
                lambda leaves: torch.nn.functional.linear(*leaves.values()),
                lambda names=names, leading=leading: draw(*names, leading=leading),
            )


def list_leaky_relu():
    for slope in (0.1, -0.5, 0.0, 1.0):
        for scale in ("scale", "one", "scalar", -1.5):
            names = ("x", "weight", "bias") + ((scale,) if isinstance(scale, str) else ())
            number = 1.0 if isinstance(scale, str) else scale

            def run(leaves, slope=slope, number=number, function=None):
                options = {"bias": None, "scale": number, "negative_slope": slope} | leaves
                return function(**options)

            yield Differentiated(
                f"leaky_relu {slope} {scale}",
                lambda leaves, run=run: run(leaves, function=functional.linear_scale_leaky_relu),
                lambda leaves, run=run: run(leaves, function=run_plain),
                lambda names=names: draw(*names),
            )


def list_norms():
    for function in (*FUSED, BATCH_NORM):
        scales = ("(N,)", "(1,)", "None", "number", "zero") if function.has_product else ("(N,)",)
        for training in (False, True):
            for scale in scales:
                for affine in (True, False):
                    yield _make_norm(function, training, scale, affine)


def _make_norm(function, training, scale, affine, eps=1e-2):
    torch.manual_seed(1)
    statistics = make_statistics()

    def run(leaves, run):
        leaves = dict.fromkeys(every) | fixed | leaves
        moved = (None, None) if training else [t.to(leaves["x"].dtype) for t in statistics]
        return call(run, leaves, moved, training, eps=eps)

    def make():
        leaves = make_norm_leaves(function, scale=scale, affine=affine)
        return {name: t for name, t in leaves.items() if isinstance(t, torch.Tensor)}

    every = make_norm_leaves(function, scale=scale, affine=affine)
    fixed = {name: t for name, t in every.items() if isinstance(t, float)}
    return Differentiated(
        f"{function} {'train' if training else 'eval'} {scale} {'affine' if affine else 'plain'}",
        lambda leaves: run(leaves, function.ours),
        lambda leaves: run(leaves, function.plain),
        make,
    )


SOFTMAX = Differentiated(
    "softmax",
    lambda leaves: functional.softmax(leaves["x"]),
    lambda leaves: torch.softmax(leaves["x"], -1),
    lambda: draw("x"),
)
ALL = [*list_linear(), *list_leaky_relu(), *list_norms(), SOFTMAX]
# One of each function and mode, with all its operands.
EACH = [
    case
    for case in ALL
    if case.name in ("linear (3,) 3", "leaky_relu 0.1 scale", "leaky_relu 0.1 -1.5", "softmax")
    or case.name.endswith("(N,) affine")
]
every_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
each_case = pytest.mark.parametrize("case", EACH, ids=lambda case: case.name)
