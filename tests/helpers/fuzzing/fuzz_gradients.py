"""Fuzzed calls of the functions, in training and in inference, with the gradients of all that asks
for one."""

from __future__ import annotations

import random

import torch
from accuracy import (
    PRODUCT_ERRORS,
    ROUNDOFF_TENSOR_CORE_SUM,
    UnfitYardstick,
    bound_error,
    matmul_settings,
    ulp,
)
from accuracy_statistics import StatisticsJudge
from calls import STATISTICS_OPS, Call
from cases import BF16, FP16, IEEE, TF32, Numerics
from fuzz_case import Case, PairJudge, bound_sums, explain_sums
from fuzz_inputs import Limits, draw_layout, draw_sizes, lay, make_generator, name_layout
from fuzz_tf32 import SpellOutTf32
from norm_functions import FUNCTIONS, MOMENTUM, call, run_eager
from plain import run_plain
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from cutlass_fused import functional

SCALES = ("none", "number", "0-dim", "(1,)", "(N,)")
LEAKY, LINEAR, SOFTMAX = "linear_scale_leaky_relu", "linear", "softmax"
NAMES = (LEAKY, LINEAR, SOFTMAX, *(str(function) for function in FUNCTIONS))
BY_NAME = {str(function): function for function in FUNCTIONS}
PRECISIONS: tuple[Numerics, ...] = (IEEE, TF32, BF16, FP16)


class Differentiated:
    """One of the functions on leaves that ask for gradients."""

    def __init__(self, rng: random.Random, device: str, limits: Limits, number: int) -> None:
        self.name, self.numerics = rng.choice(NAMES), rng.choice(PRECISIONS)
        self.norm = BY_NAME.get(self.name)
        self.training = self.norm is not None and rng.random() < 0.6
        self.has_product = self.name != SOFTMAX and (self.norm is None or self.norm.has_product)
        if not self.has_product and self.numerics is TF32:
            self.numerics = IEEE
        m, n, k = draw_sizes(rng, limits, least_rows=3)
        self.eps = 1e-2 if m > 16 else 0.5
        own = self.numerics.dtype
        wide = rng.choice((own, own, torch.float32))
        generator = make_generator(device, number)

        def draw(*size, dtype=own):
            return torch.randn(size, generator=generator, device=device).to(dtype)

        def integers(*size):
            drawn = torch.randint(-2, 3, size, generator=generator, device=device)
            return drawn.to(own)

        layouts = draw_layout(rng), draw_layout(rng)
        leaves: dict = {"x": draw(m, k if self.has_product else n)}
        words = [f"{self.name} {self.numerics} {m}x{n}x{k}", *map(name_layout, layouts)]
        if self.has_product:
            leaves["weight"] = draw(n, k) / k**0.5
            has_bias = rng.random() < 0.8
            leaves["bias"] = draw(n) if has_bias else None
        if self.name == LEAKY:
            # Exact products, none of them 0: no rounding moves one across the kink.
            leaves |= {"x": integers(m, k), "weight": integers(n, k), "bias": integers(n) + 0.5}
        if self.has_product and self.name != LINEAR:
            kind = rng.choice(SCALES)
            drawn = draw(n, dtype=wide)
            drawn = drawn.sign() * (drawn.abs() + 0.5)
            if rng.random() < 0.15 and self.name == LEAKY:
                drawn[::3] = 0
            made = {"none": None, "number": -1.5, "0-dim": drawn[0].clone(), "(1,)": drawn[:1]}
            leaves["scale"] = made.get(kind, drawn) if kind != "(N,)" else drawn
            if leaves["scale"] is None and self.name == LEAKY:
                leaves["scale"] = 1.0
            words.append(f"scale {kind}")
        if self.norm is not None:
            is_affine = rng.random() < 0.8
            leaves["gamma"] = draw(n, dtype=wide).abs() + 0.5 if is_affine else None
            leaves["beta"] = draw(n, dtype=wide) if is_affine else None
            self.statistics = draw(n, dtype=wide) / 4, draw(n, dtype=wide).abs() + 0.5
            words.append("train" if self.training else "eval")
        leaves["x"] = lay(layouts[0], leaves["x"])
        if self.has_product:
            leaves["weight"] = lay(layouts[1], leaves["weight"])
        self.slope = rng.choice((0.1, 0.0, -0.5))
        self.leaves = leaves
        self.grad_y = lay(rng.choice((None, None, *(draw_layout(rng),))), draw(m, n))
        self.words = ", ".join(words)

    def tensors(self) -> dict[str, torch.Tensor]:
        found = {name: t for name, t in self.leaves.items() if isinstance(t, torch.Tensor)}
        return found | {"grad_y": self.grad_y}

    def run(self) -> dict[str, torch.Tensor]:
        return self._differentiate(self._run_ours)

    def _run_ours(self, leaves, statistics):
        options = {"precision": self.numerics.precision} if self.has_product else {}
        if self.norm is not None:
            return call(self.norm.ours, leaves, statistics, self.training, eps=self.eps, **options)
        if self.name == SOFTMAX:
            return functional.softmax(leaves["x"])
        if self.name == LINEAR:
            return functional.linear(*leaves.values(), **options)
        return functional.linear_scale_leaky_relu(*leaves.values(), self.slope, **options)

    def _run_eager(self, leaves, statistics):
        if self.norm is not None:
            return run_eager(self.norm, leaves, statistics, self.training, self.eps)
        if self.name == SOFTMAX:
            return torch.softmax(leaves["x"], -1)
        if self.name == LINEAR:
            return F.linear(*leaves.values())
        return run_plain(*leaves.values(), self.slope)

    def _differentiate(self, run, dtype=None) -> dict[str, torch.Tensor]:
        """y, the gradients, and in training the running statistics, by name."""

        def take(tensor):
            return tensor.detach() if dtype is None else tensor.detach().to(dtype)

        leaves = {
            name: take(leaf).requires_grad_() if isinstance(leaf, torch.Tensor) else leaf
            for name, leaf in self.leaves.items()
        }
        asking = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
        statistics = ()
        if self.norm is not None:
            statistics = tuple(take(t).clone() for t in self.statistics)
        y = run(leaves, statistics)
        grads = torch.autograd.grad(y, list(asking.values()), take(self.grad_y).to(y.dtype))
        found = {"y": y.detach()}
        found |= {f"grad_{name}": grad for name, grad in zip(asking, grads, strict=True)}
        return found | dict(zip(("running_mean", "running_var"), statistics, strict=False))

    def make_judge(self, is_forced: bool = False) -> PairJudge:
        truth = self._differentiate(self._run_eager, torch.float64)
        is_tf32 = self.numerics.precision == "tf32" and self.has_product
        with matmul_settings("tf32" if is_tf32 else "ieee"):
            eager = [self._differentiate(self._run_eager)]
        if is_tf32:
            with matmul_settings("ieee"), SpellOutTf32():
                eager.append(self._differentiate(self._run_eager))
        # Gradients of vectors are sums over the rows, and few: it is luck how little eager's order
        # of the sum loses. One ulp of what is summed, about four times the largest sum; for a
        # single number, the sum over all elements, 16 times: as judge_gradients has it.
        floors = {}
        for name, exact in truth.items():
            times = 16 if exact.numel() == 1 else 4 if exact.dim() < 2 else 0
            if times:
                floors[name] = float(ulp(times * exact.abs().max(), eager[0][name].dtype))
        return PairJudge(truth, eager, floors, self.name)

    def explain(self, judge: PairJudge, results, error) -> str | None:
        """What is above twice eager's error may be what sums and split products lose by their
        a-priori bounds, where those are known."""
        if "error above" not in str(error):
            return None
        product = PRODUCT_ERRORS[self.numerics.precision].ours
        product += torch.finfo(self.numerics.dtype).eps * (self.numerics.dtype.itemsize == 2)
        sizes = self._find_sizes(judge.truth)
        bounds = {name: bound_sums(*each, product) for name, each in sizes.items()}
        if self.norm is not None and self.has_product:
            bounds |= self._bound_forward(product)
        return explain_sums(judge, results, bounds)

    def _find_sizes(self, truth) -> dict[str, tuple[torch.Tensor, int]]:
        """Of gradients that are plain sums: that of the magnitudes, and how many they are of."""
        wide = {name: t.double() for name, t in self.tensors().items()}
        size, m = wide["grad_y"].abs(), len(wide["grad_y"])
        found = {}
        if self.name in ("batch_norm", "linear_scale_batch_norm") and "gamma" in wide:
            normalized = (truth["y"] - wide["beta"]) / wide["gamma"]
            of_gamma = (size * (normalized.abs() + 1)).sum(0)
            found = {"grad_beta": (size.sum(0), m), "grad_gamma": (of_gamma, m)}
        if not self.has_product:
            return found
        size = self._find_grad_z().abs()
        of_x, of_weight = size @ wide["weight"].abs(), size.t() @ wide["x"].abs()
        found |= {"grad_x": (of_x, size.shape[1]), "grad_weight": (of_weight, m)}
        return found if self.norm is not None else found | {"grad_bias": (size.sum(0), m)}

    @torch.enable_grad()
    def _find_grad_z(self) -> torch.Tensor:
        """The gradient of the product and its bias, in float64."""
        leaves = {
            name: leaf.detach().double() if isinstance(leaf, torch.Tensor) else leaf
            for name, leaf in self.leaves.items()
        }
        statistics = tuple(t.double() for t in self.statistics) if self.norm is not None else ()
        with _AddToProduct() as added:
            y = self._run_eager(leaves, statistics)
        (grad,) = torch.autograd.grad(y, added.zeros, self.grad_y.double())
        return grad

    def _bound_forward(self, product: float) -> dict[str, torch.Tensor]:
        """What the product and its sum may lose, in y and the running statistics: a batch norm of
        few rows divides that by a small deviation."""
        leaves = {
            k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in self.leaves.items()
        }
        if isinstance(leaves["scale"], float):
            leaves["scale"] = torch.tensor(leaves["scale"], device=self.grad_y.device)
        mean, variance = (each.clone() for each in self.statistics)
        one = Call(
            self.norm.op(self.training),
            **leaves,
            running_mean=mean,
            running_var=variance,
            momentum=MOMENTUM,
            eps=self.eps,
            precision=self.numerics.precision,
        )
        if one.op not in STATISTICS_OPS:
            return {"y": bound_error(one, product, ROUNDOFF_TENSOR_CORE_SUM, torch.float32)}
        try:
            judge = StatisticsJudge(one)
        except UnfitYardstick:
            return {}
        return (judge.moment_bounds if self.training else {}) | judge.bounds


class _AddToProduct(TorchFunctionMode):
    """Adds zeros to what F.linear gives: their gradient is that of the product."""

    zeros: torch.Tensor

    def __torch_function__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        if function is not F.linear:
            return found
        self.zeros = torch.zeros_like(found).requires_grad_()
        return found + self.zeros


def draw_case(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    rng = random.Random(f"gradient {seed} {index}")
    one = Differentiated(rng, device, limits, 1_000_003 * index + 7919 * draw + seed)
    narrow = one.numerics.dtype.itemsize == 2
    tiles = () if not one.has_product else ("sm80",) if narrow else ("sm80", "split_rows")
    return Case("gradient", one.words, one.tensors(), one.run, one.make_judge, tiles, one.explain)
