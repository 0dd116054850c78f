"""Fuzzed epilogues: functions written at random behind products, with gradients, and alone."""

from __future__ import annotations

import dataclasses
import functools
import random

import torch
from accuracy import PRODUCT_ERRORS, matmul_settings
from fuzz_case import Case, PairJudge, bound_sums, explain_sums
from fuzz_grammar import COLUMN, ROW, SCALAR, TILE, Written, write_function
from fuzz_inputs import (
    Limits,
    draw_layout,
    draw_sizes,
    lay,
    make_generator,
    name_layout,
    put_non_finite,
)
from fuzz_tf32 import SpellOutTf32
from judge_epilogues import make_grads
from torch.nn import functional as F

from cutlass_fused.programs.epilogue import Epilogue
from cutlass_fused.programs.operands import find_kind
from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import run_whole
from cutlass_fused.programs.traced import TracedFunction

ops = torch.ops.cutlass_fused
PRECISIONS = ("ieee", "tf32", "bf16", "fp16")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Functions of one seed: each kernel that is linked takes seconds.
POOL = 60


@functools.cache
def make_program(seed: int, number: int, is_smooth: bool) -> tuple[Written, Epilogue]:
    rng = random.Random(f"program {seed} {number} {is_smooth}")
    written = write_function(rng, is_smooth)
    return written, Epilogue(written.function)


@dataclasses.dataclass
class Behind:
    """A function behind a product."""

    written: Written
    ours: Epilogue
    tensors: dict[str, torch.Tensor]  # x, weight and the operands
    precision: str
    has_gradient: bool

    @property
    def options(self) -> dict:
        return {"precision": self.precision} if self.precision in ("ieee", "tf32") else {}

    def run(self) -> dict[str, torch.Tensor]:
        def run(x, weight, *operands):
            named = dict(zip(self.written.operands, operands, strict=True))
            return self.ours(x, weight, **named, **self.options)

        return self._run(run, list(self.tensors.values()))

    def run_eager(self, tensors) -> dict[str, torch.Tensor]:
        return self._run(self.apply, tensors)

    def apply(self, x, weight, *operands):
        """PyTorch's own ops, with the dtype of what they give that an epilogue has."""
        named = dict(zip(self.written.operands, operands, strict=True))
        results = self.written.function(F.linear(x, weight), **named)
        dtype = x.dtype
        for operand in operands:
            dtype = torch.promote_types(dtype, operand.dtype) if operand.dim() else dtype
        if isinstance(results, tuple):
            return tuple(result.to(dtype) for result in results)
        return results.to(dtype)

    def _run(self, run, tensors) -> dict[str, torch.Tensor]:
        if self.has_gradient:
            tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        with torch.set_grad_enabled(self.has_gradient):
            results = run(*tensors)
        results = results if isinstance(results, tuple) else (results,)
        found = {f"y{i}": result.detach() for i, result in enumerate(results)}
        if self.has_gradient:
            grads = torch.autograd.grad(
                results, tensors, make_grads(results), allow_unused=True, materialize_grads=True
            )
            found |= {f"grad_{name}": g for name, g in zip(self.tensors, grads, strict=True)}
        return found

    def make_judge(self, is_forced: bool = False) -> PairJudge:
        given = list(self.tensors.values())
        wide = [tensor.detach().double() for tensor in given]
        truth = self.run_eager(wide)
        is_tf32 = self.precision == "tf32"
        with matmul_settings("tf32" if is_tf32 else "ieee"):
            eager = [self.run_eager(given)]
        if is_tf32:
            with matmul_settings("ieee"), SpellOutTf32():
                eager.append(self.run_eager(given))
        return PairJudge(truth, eager, self._find_floors(wide, truth), "epilogue")

    def _find_floors(self, wide, truth) -> dict[str, float]:
        """What sums in fp32 may lose of terms that cancel: over rows in the gradients of operands,
        over N and M in those of x and weight, over a row within the function."""
        least = torch.finfo(torch.float32).eps
        floors = {}
        if self.written.is_of_rows:
            floors = {name: 8 * least * _largest(each) for name, each in truth.items()}
        if self.has_gradient:
            for name, magnitude in self._find_magnitudes(*wide).items():
                floors[f"grad_{name}"] = 4 * least * _largest(magnitude)
        return floors

    def explain(self, judge: PairJudge, results, error) -> str | None:
        """As that of fuzz_gradients.py, of the products that give the gradients of x and weight."""
        if "error above" not in str(error) or not self.has_gradient:
            return None
        if self.tensors["x"].dtype != torch.float32:
            return None
        sizes = self._find_sizes(*(tensor.detach().double() for tensor in self.tensors.values()))
        product = PRODUCT_ERRORS[self.precision].ours
        bounds = {name: bound_sums(*each, product) for name, each in sizes.items()}
        return explain_sums(judge, results, bounds)

    @torch.enable_grad()
    def _find_sizes(self, x, weight, *operands) -> dict[str, tuple[torch.Tensor, int]]:
        """Of the gradients of x and weight, in float64: the sums of the magnitudes of what is added
        up in them, and how many those are."""
        z = F.linear(x, weight).requires_grad_()
        named = dict(zip(self.written.operands, operands, strict=True))
        results = self.written.function(z, **named)
        results = results if isinstance(results, tuple) else (results,)
        results = [result for result in results if result.requires_grad]
        if not results:
            return {}
        (grad_z,) = torch.autograd.grad(results, z, make_grads(results), materialize_grads=True)
        size = grad_z.abs()
        return {
            "grad_x": (size @ weight.abs(), weight.shape[0]),
            "grad_weight": (size.t() @ x.abs(), x.shape[0]),
        }

    @torch.enable_grad()
    def _find_magnitudes(self, x, weight, *operands) -> dict[str, torch.Tensor]:
        """Of the gradient of an operand, the sums of the magnitudes of what is added up in it."""
        shape = x.shape[0], weight.shape[0]
        terms = [operand.expand(shape).clone().requires_grad_() for operand in operands]
        results = self.apply(x, weight, *terms)
        results = results if isinstance(results, tuple) else (results,)
        results = [result for result in results if result.requires_grad]
        if not results:
            return {}
        found = torch.autograd.grad(results, terms, make_grads(results), allow_unused=True)
        named = zip(list(self.tensors)[2:], operands, found, strict=True)
        return {
            name: of.abs().sum_to_size(operand.shape)
            for name, operand, of in named
            if of is not None
        }


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def draw_operands(rng, written: Written, m: int, n: int, dtype, generator, device: str):
    """name -> tensor, of any of the dtypes, in any layout."""
    shapes = {ROW: (n,), COLUMN: (m, 1), SCALAR: rng.choice(((), (1,))), TILE: (m, n)}
    found = {}
    for name, kind in written.operands.items():
        of = rng.choice((dtype, dtype, torch.float32))
        drawn = torch.randn(shapes[kind], generator=generator, device=device).to(of)
        if kind == TILE:
            drawn = lay(draw_layout(rng), drawn)
        elif kind == ROW and rng.random() < 0.3:
            drawn = drawn.repeat_interleave(3)[1::3]  # among others
        found[name] = drawn
    return found


def draw_case(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    rng = random.Random(f"behind {seed} {index}")
    has_gradient = rng.random() < 0.5
    written, ours = make_program(seed, rng.randrange(POOL), has_gradient)
    precision = rng.choice(PRECISIONS)
    dtype = DTYPES.get(precision, torch.float32)
    m, n, k = draw_sizes(rng, limits)
    generator = make_generator(device, 1_000_003 * index + 7919 * draw + seed)
    layouts = draw_layout(rng), draw_layout(rng)
    x, weight = (
        torch.randn(rows, k, generator=generator, device=device).to(dtype) for rows in (m, n)
    )
    weight = weight / k**0.5
    words = [f"{m}x{n}x{k} {precision}", *map(name_layout, layouts)]
    # What infinity becomes depends on the dtype that a function is computed in: 16 bits in eager.
    is_by_dtype = dtype != torch.float32 and "nan_to_num" in written.text
    if not has_gradient and rng.random() < 0.1 and not is_by_dtype:
        x, words = put_non_finite(rng, x, 2), [*words, "non-finite"]
    tensors = {"x": lay(layouts[0], x), "weight": lay(layouts[1], weight)}
    tensors |= draw_operands(rng, written, m, n, dtype, generator, device)
    behind = Behind(written, ours, tensors, precision, has_gradient)
    words += ["gradient"] if has_gradient else []
    form = None if has_gradient or written.is_of_rows else ((m, n), dtype)
    if any(t.dim() and t.dtype != dtype for t in tensors.values()):
        form = None
    return Case(
        "program",
        f"{', '.join(words)}: {written}",
        tensors,
        behind.run,
        behind.make_judge,
        ("sm80", "split_rows") if dtype == torch.float32 else ("sm80",),
        behind.explain,
        form,
    )


def draw_case_alone(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    """A function of numbers in memory, by the op that runs a program's text."""
    rng = random.Random(f"alone {seed} {index}")
    written, _ = make_program(seed, rng.randrange(POOL), False)
    m, n, _ = draw_sizes(rng, limits)
    dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
    generator = make_generator(device, 1_000_003 * index + 7919 * draw + seed)
    x = 2 * torch.randn(m, n, generator=generator, device=device)
    x = x.to(dtype)
    is_special = rng.random() < 0.15
    x = put_non_finite(rng, x, 3) if is_special else x
    x = lay(layout := draw_layout(rng), x)
    operands = draw_operands(rng, written, m, n, dtype, generator, device)
    kinds = ((name, find_kind("fuzz", name, t, x, n)) for name, t in operands.items())
    key = tuple((name, (kind, min(operands[name].dim(), 2))) for name, kind in kinds)
    text = TracedFunction("fuzzed", written.function).find(key, n).program.text
    out = str(rng.choice((dtype, torch.float32))).removeprefix("torch.")

    def run():
        results = ops.apply_program(x, list(operands.values()), text, out)
        return {f"y{i}": result for i, result in enumerate(results)}

    def refer(wide):
        given = [operand.to(wide) for operand in operands.values()]
        results = run_whole(parse(text), x.to(wide), given)
        return {f"y{i}": each for i, each in enumerate(results)}

    def make_judge(is_forced=False):
        eager = {name: y.to(getattr(torch, out)) for name, y in refer(torch.float32).items()}
        truth = refer(torch.float64)
        # Words are functions of fp32, each right to some of its last places.
        least = 16 * torch.finfo(torch.float32).eps
        floors = {name: least * max(1.0, _largest(each)) for name, each in truth.items()}
        return PairJudge(truth, [eager], floors, "apply_program")

    words = f"{m}x{n} {dtype} -> {out}, {name_layout(layout)}{', non-finite' * is_special}"
    return Case(
        "program alone",
        f"{words}: {written}".replace("torch.f", "f", 1),
        {"x": x, **operands},
        run,
        make_judge,
        form=None if written.is_of_rows else ((m, n), getattr(torch, out)),
    )
