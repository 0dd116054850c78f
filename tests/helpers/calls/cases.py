"""The cases: dtypes, shapes with their reasons, and the inputs made of them.

The CPU tests, the GPU tests and the planted faults all draw their inputs here: a fault that these
inputs do not show would stay unseen on the GPU too.
"""

from __future__ import annotations

import dataclasses

import torch
from calls import BATCH_NORM, LEAKY, MORE_OPERANDS, Call
from layouts import make_vector

from cutlass_fused.epilogues import EPILOGUES
from cutlass_fused.epilogues._description import Row, RowOrScalar
from kernels.table import MATH_ROWS


@dataclasses.dataclass(frozen=True)
class Numerics:
    """A row of the table of dtypes: of x and weight, and of the result; precision of fp32."""

    name: str
    dtype: torch.dtype
    precision: str = "ieee"
    out_dtype: torch.dtype | None = None

    def __str__(self):
        return self.name


# The types as their names have them; the log calls fp16 "f16".
SHORT_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def list_numerics() -> tuple[Numerics, ...]:
    """Of every Math row; 16-bit ones write fp32 too. Plain fp32 serves the short K of others."""
    narrow, wide, full = [], [], []
    for row in MATH_ROWS:
        dtype = getattr(torch, row.type.removeprefix("k").lower())
        if dtype != torch.float32:
            name = SHORT_NAMES.get(dtype, row.name)
            narrow.append(Numerics(name, dtype))
            wide.append(Numerics(f"{name}_fp32", dtype, out_dtype=torch.float32))
        elif row.engine != "kSimt":
            word = row.precision.removeprefix("k").lower()
            full.append(Numerics(word, dtype, word))
    return tuple(dict.fromkeys([*narrow, *wide, *full]))


NUMERICS = list_numerics()
# Enough where the dtype of the result does not matter.
ONE_OUTPUT = tuple(numerics for numerics in NUMERICS if numerics.out_dtype is None)
FP16, BF16, FP16_FP32, BF16_FP32, IEEE, TF32 = (
    next(numerics for numerics in NUMERICS if numerics.name == name)
    for name in ("fp16", "bf16", "fp16_fp32", "bf16_fp32", "ieee", "tf32")
)


@dataclasses.dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    reason: str

    def __str__(self):
        return f"{self.m}x{self.n}x{self.k}"


SHAPES = (
    Shape(128, 256, 128, "every tile divides it"),
    Shape(1, 264, 256, "M = 1: one row, as in generation"),
    Shape(17, 264, 256, "M just above a small tile"),
    Shape(133, 264, 96, "ragged M: a last tile with few rows"),
    Shape(130, 200, 72, "N that no tile divides, K no multiple of a stage; rows 16-byte aligned"),
    Shape(64, 96, 8, "K = 8: one 16-byte access of 16-bit numbers, less than any stage"),
    Shape(65, 72, 24, "K below one tile"),
    Shape(70, 136, 36, "rows of 16 bytes in fp32, of 8 bytes in 16-bit"),
    Shape(70, 134, 66, "rows of 8 bytes in fp32, of 4 bytes in 16-bit"),
    Shape(37, 77, 51, "odd K and odd N: no row but the first is aligned"),
    Shape(33, 129, 64, "odd N behind an aligned K: only bias, scale and output are unaligned"),
    Shape(40, 1, 64, "N = 1: one column"),
    Shape(40, 1, 33, "N = 1 and odd K"),
    Shape(40, 72, 1, "K = 1: an outer product"),
    Shape(1, 1, 1, "nothing but one number"),
    Shape(40, 72, 0, "K = 0: an empty sum, only the tail is left"),
    Shape(0, 72, 64, "empty batch: no launch"),
    Shape(40, 0, 64, "N = 0: no launch"),
    Shape(0, 72, 0, "nothing at all"),
    Shape(1030, 520, 64, "more tiles than SMs for small tiles, a short mainloop"),
    Shape(520, 77, 72, "odd N and many rows: a 16-bit result is copied back on SM90"),
    Shape(48, 80, 4096, "few tiles and a long K: stream-K splits it"),
    Shape(3, 520, 4104, "small M and a long K that no stage divides"),
)
# M even (3-D), K of whole 16-byte rows, N ragged: the layout alone decides about alignment.
LAYOUT_SHAPE = Shape(70, 136, 64, "aligned but for its layout")


def draw_uniform(*size: int, generator: torch.Generator, low=0.0, high=1.0) -> torch.Tensor:
    numbers = torch.rand(size, generator=generator, device=generator.device)
    return low + (high - low) * numbers


def draw_normal(*size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(size, generator=generator, device=generator.device)


def draw_matrices(distribution: str, shape: Shape, generator: torch.Generator):
    """x and weight in float32; weight is of order 1 / sqrt(K), so that the result is of order 1.

    "model": x from torch.rand, weight as torch.nn.Linear draws it. "positive": errors of one sign
    add up instead of cancelling. "log_normal": spread over many binades, within a row too.
    """
    sizes = ((shape.m, shape.k), (shape.n, shape.k))
    if distribution == "model":
        x = draw_uniform(*sizes[0], generator=generator)
        weight = draw_uniform(*sizes[1], generator=generator, low=-1.0)
    elif distribution == "positive":
        x, weight = (draw_uniform(*size, generator=generator) for size in sizes)
    else:
        x, weight = (draw_normal(*size, generator=generator) for size in sizes)
        if distribution == "log_normal":
            x, weight = (
                t.sign() * torch.exp(3 * draw_normal(*t.shape, generator=generator))
                for t in (x, weight)
            )
        elif distribution != "normal":
            raise ValueError(distribution)
    return x, weight / max(shape.k, 1) ** 0.5


def make_call(
    op: str,
    shape: Shape,
    numerics: Numerics,
    device="cpu",
    *,
    bias: str = "own",
    scale: str = "own",
    vectors: str = "own",
    multiplier: float = 2.0,
    slope: float = 0.1,
    eps: float = 1e-2,
    distribution: str = "normal",
    seed: int = 0,
) -> Call:
    """A call whose every argument shows in the result.

    `bias`, `scale` and `vectors` (mean, variance, gamma, beta) are kinds of `make_vector`. Scales
    have both signs; variances lie between 0.01 and 1, so that the default eps of 0.01 and its place
    under the root are visible in 16 bits too.
    """
    generator = torch.Generator(device).manual_seed(seed)
    n, dtype = shape.n, numerics.dtype
    x, weight = draw_matrices(distribution, shape, generator)

    def normal():
        return draw_normal(n, generator=generator)

    def values(low, high):
        return draw_uniform(n, generator=generator, low=low, high=high)

    call = Call(
        op,
        x.to(dtype),
        weight.to(dtype),
        make_vector(bias, normal(), dtype),
        precision=numerics.precision,
        out_dtype=numerics.out_dtype,
    )
    if op in (LEAKY, BATCH_NORM):
        call = call.change(scale=make_vector(scale, normal().sign() * values(0.5, 2.0), dtype))
    if op == LEAKY:
        call = call.change(multiplier=multiplier, negative_slope=slope)
    if op == BATCH_NORM:
        statistics = "own" if vectors == "none" else vectors  # mean and variance have no default
        call = call.change(
            running_mean=make_vector(statistics, normal(), dtype),
            running_var=make_vector(statistics, values(0.01, 1.0), dtype),
            gamma=make_vector(vectors, values(0.5, 2.0), dtype),
            beta=make_vector(vectors, normal(), dtype),
            eps=eps,
        )
    for operand in EPILOGUES[op].operands:
        if operand.name in MORE_OPERANDS and isinstance(operand, (Row, RowOrScalar)):
            kind = scale if isinstance(operand, RowOrScalar) else vectors
            kind = "own" if operand.required and kind == "none" else kind
            call = call.change(**{operand.name: make_vector(kind, normal(), dtype)})
    return call


def make_large_mean_call(numerics: Numerics, device="cpu") -> Call:
    """Batch norm with mean / std = 1e3 behind an exact product.

    x and weight are small integers, so z = 1000 + an integer is exact in every engine, and what is
    left is the error of the tail: a mean folded into one shift cancels here.
    """
    generator = torch.Generator(device).manual_seed(0)
    m, n, k = 64, 72, 16

    def integers(*size):
        numbers = torch.randint(-1, 2, size, generator=generator, device=device)
        return numbers.to(numerics.dtype)

    def values(low, high):
        return draw_uniform(n, generator=generator, low=low, high=high)

    return Call(
        BATCH_NORM,
        integers(m, k),
        integers(n, k),
        torch.full((n,), 1000.0, device=device),
        running_mean=values(999.0, 1001.0),
        running_var=values(0.5, 2.0),
        gamma=values(0.5, 2.0),
        beta=values(-1.0, 1.0),
        precision=numerics.precision,
        out_dtype=numerics.out_dtype,
    )


def make_special_call(op: str, numerics: Numerics, device="cpu", *, slope: float = 0.1) -> Call:
    """NaN and infinities in x, weight, bias and scale, each beside finite rows and columns.

    Rows 0 to 3 of x and of weight are special, and columns 4 to 7 of the result through its
    vectors; row 4 of weight is zero, so that infinity meets 0.
    """
    call = make_call(op, Shape(24, 40, 64, "room beside the special rows"), numerics, device)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, torch.inf], device=device)
    for matrix in (call.x, call.weight):
        matrix[torch.arange(4), torch.tensor([0, 3, 17, 63])] = special.to(matrix.dtype)
    call.x[3, 5] = -torch.inf  # infinities of both signs in one row
    call.weight[4] = 0
    call.bias[4:7] = special[:3]
    if call.scale is not None:
        call.scale[6:9] = special[:3]
        call.scale[9] = 0
    if op == LEAKY:
        call = call.change(negative_slope=slope)
    if op == BATCH_NORM:
        call.running_mean[10:13] = special[:3]
        call.running_var[13:15] = special[:2]
        call.gamma[15:18] = special[:3]
        call.beta[18:21] = special[:3]
    return call
