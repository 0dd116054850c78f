"""Fuzzed products of batches, products and what is added to them, and those that are written to a
tensor of the caller's, with canaries around it on any device."""

from __future__ import annotations

import random

import torch
from accuracy import (
    PRODUCT_ERRORS,
    ROUNDOFF_TENSOR_CORE_SUM,
    accumulate_roundoff,
    matmul_settings,
    round_to_tf32,
    ulp,
)
from fuzz_case import CanaryDied, Case, PairJudge
from fuzz_inputs import (
    Limits,
    draw_layout,
    draw_sizes,
    lay,
    make_generator,
    name_layout,
    put_non_finite,
)
from tiles import list_tf32x3

ops = torch.ops.cutlass_fused
OPS = ("linear_out", "addmm", "addmm_out", "bmm", "baddbmm", "baddbmm_out")
NUMBERS = (0.0, 1.0, 1.0, -1.0, 0.5, 2.0, -0.0)
# What broadcasts to (M, N), and to (B, M, N).
ADDED = {
    "matrix": lambda b, m, n: (m, n),
    "row": lambda b, m, n: (n,),
    "column": lambda b, m, n: (m, 1),
    "number": lambda b, m, n: (),
}
# Numbers of each side of a result, and what they are: none that a sum gives.
GUARD, CANARY = 64, -7.25e4


class Guarded:
    """A tensor of this form in the middle of a larger one."""

    def __init__(self, shape, dtype: torch.dtype, device) -> None:
        count = torch.Size(shape).numel()
        self.memory = torch.full((count + 2 * GUARD,), CANARY, device=device).to(dtype)
        self.kept = self.memory[0].clone()
        self.tensor = self.memory[GUARD : GUARD + count].view(shape)

    def check(self) -> None:
        for place, side in (("in front of", slice(0, GUARD)), ("behind", slice(-GUARD, None))):
            if not bool((self.memory[side] == self.kept).all()):
                raise CanaryDied(f"memory {place} the result was overwritten")


def turn(batch: torch.Tensor) -> torch.Tensor:
    return batch.mT.contiguous().mT


class Sum:
    """alpha * x @ weight.T + beta * c by one of the ops."""

    def __init__(self, rng: random.Random, device: str, limits: Limits, number: int) -> None:
        self.op = rng.choice(OPS)
        self.batch = round(2 ** rng.uniform(0, 7)) if "b" in self.op.removesuffix("out") else 0
        self.batch = self.batch if self.op in ("bmm", "baddbmm", "baddbmm_out") else 0
        m, n, k = draw_sizes(rng, limits, max(self.batch, 1))
        self.precision = rng.choice(("ieee", "ieee", "tf32"))
        self.dtype = torch.float32
        if self.op in ("bmm", "linear_out"):
            self.dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
        self.result_dtype = self.dtype
        if self.op == "linear_out":
            self.result_dtype = rng.choice((self.dtype, torch.float32))
        generator = make_generator(device, number)

        def draw(*shape, dtype=self.dtype):
            return torch.randn(shape, generator=generator, device=device).to(dtype)

        leading = (self.batch,) if self.batch else ()
        x, weight = draw(*leading, m, k), draw(*leading, n, k)
        weight = weight / k**0.5
        words = []
        if rng.random() < 0.1:
            x, words = put_non_finite(rng, x, 2), ["non-finite"]
        if self.batch:
            is_turned = rng.random() < 0.5, rng.random() < 0.5
            x, weight = (turn(t) if mn else t for t, mn in zip((x, weight), is_turned, strict=True))
            words += [f"turned {is_turned}"]
            if rng.random() < 0.2:
                weight, words = weight[:1].expand(self.batch, -1, -1), [*words, "one weight"]
        else:
            layouts = draw_layout(rng), draw_layout(rng)
            x, weight = lay(layouts[0], x), lay(layouts[1], weight)
            words += map(name_layout, layouts)
        self.shape = (*leading, m, n)
        self.alpha, self.beta, self.c = 1.0, 0.0, None
        if self.op == "linear_out":
            self.c = draw(n) if rng.random() < 0.7 else None
            self.beta = 1.0
        elif self.op != "bmm":
            self.alpha, self.beta = rng.choice(NUMBERS), rng.choice(NUMBERS)
            kind = rng.choice(list(ADDED))
            self.c, words = draw(*ADDED[kind](self.batch, m, n)), [*words, f"c a {kind}"]
            self.is_over = self.op.endswith("_out") and rng.random() < 0.4
            if self.is_over:
                self.c, words = draw(*self.shape), [*words, "over c"]
        self.x, self.weight = x, weight
        sizes = "x".join(map(str, (*leading, m, n, k)))
        scales = f"alpha {self.alpha} beta {self.beta}"
        named = f"{self.op} {self.dtype} -> {self.result_dtype} {self.precision}".replace(
            "torch.", ""
        )
        self.words = ", ".join([f"{named} {sizes} {scales}", *words])

    def tensors(self) -> dict[str, torch.Tensor]:
        found = {"x": self.x, "weight": self.weight}
        return found if self.c is None else found | {"c": self.c}

    def run(self) -> dict[str, torch.Tensor]:
        x, weight, c = self.x, self.weight, self.c
        numbers = self.beta, self.alpha
        if self.op == "bmm":
            return {"y": ops.bmm(x, weight, self.precision)}
        if self.op in ("addmm", "baddbmm"):
            return {"y": getattr(ops, self.op)(c, x, weight, *numbers, self.precision)}
        guarded = Guarded(self.shape, self.result_dtype, x.device)
        y = guarded.tensor
        if self.op == "linear_out":
            y.fill_(torch.nan)
            ops.linear_out(y, x, weight, c, self.precision)
        else:
            c = y.copy_(c) if self.is_over else c
            if not self.is_over:
                y.fill_(torch.nan)
            getattr(ops, self.op)(y, c, x, weight, *numbers, self.precision)
        # Of a capture the canaries are looked at in its replay's results.
        return {"y": y, "guarded": guarded}

    def compute(self, x, weight, c) -> torch.Tensor:
        """By PyTorch's ops, in the dtypes of what it is given."""
        if self.op == "bmm":
            return torch.bmm(x, weight.mT)
        if self.op == "linear_out":
            z = x @ weight.t()
            return z if c is None else z + c
        # NaN counts for nothing behind a 0.
        x, weight = (x, weight) if self.alpha else (x[..., :0], weight[..., :0])
        add = torch.baddbmm if self.batch else torch.addmm
        # Under a beta of -0 torch.baddbmm multiplies memory that it has not written.
        return add(c, x, weight.mT, beta=self.beta or 0.0, alpha=self.alpha)

    def make_judge(self, is_forced: bool = False) -> PairJudge:
        wide = [t if t is None else t.double() for t in (self.x, self.weight, self.c)]
        given = [t.to(self.result_dtype) for t in (self.x, self.weight)]
        with matmul_settings(self.precision):
            found = [self.compute(*given, self.c)]
        if self.precision == "tf32" and self.dtype == torch.float32:
            with matmul_settings("ieee"):
                found.append(self.compute(*map(round_to_tf32, given), self.c))
        eager = [{"y": each.to(self.result_dtype)} for each in found]
        # Eager's choice of a kernel says nothing of one that is forced.
        bound = self.find_bound()
        finite = bound[torch.isfinite(bound)]
        floors = {"y": float(finite.max())} if is_forced and finite.numel() else {}
        return PairJudge({"y": self.compute(*wide)}, eager, floors, self.op)

    def find_bound(self) -> torch.Tensor:
        """What products and their sums may lose, of each output."""
        x, weight = self.x.double().abs(), self.weight.double().abs()
        is_full = self.dtype == torch.float32
        product = PRODUCT_ERRORS[self.precision].ours if is_full else 0.0
        lost = product + accumulate_roundoff(x.shape[-1] + 3, ROUNDOFF_TENSOR_CORE_SUM)
        bound = lost * abs(self.alpha) * (x @ weight.mT)
        if self.c is not None and self.beta:
            bound = bound + 3 * ROUNDOFF_TENSOR_CORE_SUM * abs(self.beta) * self.c.double().abs()
        return bound

    def explain(self, judge: PairJudge, results, error) -> str | None:
        """Within the a-priori bound a product of few terms, or a long sum, may be above twice
        eager's error: its products have 22 digits, or its order is another."""
        if "error above" not in str(error):
            return None
        truth, y = judge.truth["y"], results["y"]
        wrong = (y.double() - truth).abs() > self.find_bound() + ulp(truth, y.dtype)
        return None if wrong.any() else "digits of a product, or the order of a sum"

    def list_forcible(self) -> tuple[str, ...]:
        if self.x.device.type != "cuda" or self.dtype != torch.float32:
            return ()
        tiles = [] if self.batch else ["sm80"]
        # Those for 9.0 are of "ieee" alone.
        own = [
            tile
            for tile in list_tf32x3(self.x, self.weight)
            if self.precision == "ieee" or ".sm90" not in tile
        ]
        # Where alpha is 0 there is no product.
        cublas = ["cublas"] if self.alpha else []
        return (*tiles, "tf32x3", "split_rows", *cublas, *own)


def draw_case(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    rng = random.Random(f"sum {seed} {index}")
    one = Sum(rng, device, limits, 1_000_003 * index + 7919 * draw + seed)
    has_form = one.op in ("addmm", "bmm", "baddbmm")
    return Case(
        "sum",
        one.words,
        one.tensors(),
        one.run,
        one.make_judge,
        one.list_forcible(),
        one.explain,
        form=(one.shape, one.result_dtype) if has_form else None,
    )
