"""The cases of batch norm in training and of ops along rows: their shapes and inputs."""

from __future__ import annotations

import torch
from calls import (
    NORM,
    NORM_SOFTMAX_TRAIN,
    NORM_TRAIN,
    OPS,
    PRODUCT_OPS,
    SCALE_NORM_TRAIN,
    SCALED_OPS,
    SOFTMAX,
    STATISTICS_OPS,
    TRAIN_OPS,
    Call,
)
from cases import (
    BF16,
    BF16_FP32,
    FP16,
    FP16_FP32,
    IEEE,
    NUMERICS,
    Numerics,
    Shape,
    draw_matrices,
    draw_normal,
    draw_uniform,
    make_call,
)
from layouts import make_vector

from cutlass_fused.row_ops import ROW_OPS

# Each op with the rows of the table of dtypes that it can tell apart: those without a product know
# no precision, the stand-alone batch norms and some ops along rows no dtype of the result.
_NUMERICS = {NORM: (FP16, BF16, IEEE), NORM_TRAIN: (FP16, BF16, IEEE)}
_NUMERICS |= {
    op: (FP16, BF16, *((FP16_FP32, BF16_FP32) if row_op.out_dtype else ()), IEEE)
    for op, row_op in ROW_OPS.items()
}
OPS_AND_NUMERICS = [
    (op, numerics) for op in STATISTICS_OPS for numerics in _NUMERICS.get(op, NUMERICS)
]

# M x N of the stand-alone ops; K only where a product stands in front.
SHAPES = (
    Shape(128, 256, 128, "whole tiles, whole accesses"),
    Shape(2, 264, 64, "M = 2: the smallest batch that has a variance"),
    Shape(3, 72, 24, "fewer rows than warps"),
    Shape(133, 264, 96, "ragged M: a last tile with few rows"),
    Shape(130, 200, 72, "N that no tile divides"),
    Shape(37, 77, 51, "odd everywhere: no row but the first is aligned"),
    Shape(70, 134, 66, "rows of 4 bytes in 16-bit"),
    Shape(40, 1, 64, "N = 1: one column, and rows of one element"),
    Shape(40, 2, 33, "N = 2"),
    Shape(40, 72, 0, "K = 0: columns of the bias alone, with variance 0"),
    Shape(0, 72, 64, "empty batch: counted, but nothing is updated"),
    Shape(40, 0, 64, "N = 0: no launch"),
    Shape(1030, 520, 64, "more row tiles than one pass of merging"),
)
# M even, N ragged, K of whole 16-byte rows: the layout alone decides about alignment.
LAYOUT_SHAPE = Shape(70, 136, 64, "aligned but for its layout")
DISTANT_SHAPE = Shape(200, 136, 16, "an exact product")


def make_statistics_call(
    op: str,
    shape: Shape,
    numerics: Numerics,
    device="cpu",
    *,
    bias: str = "own",
    scale: str = "own",
    vectors: str = "own",
    statistics: str = "fp32",
    momentum: float | None = 0.3,
    eps: float | None = None,
    seed: int = 0,
) -> Call:
    """A call whose every argument shows in the results.

    `bias`, `scale`, `vectors` (gamma and beta, or all of an op along rows) and `statistics` (the
    running ones; "none" only in training) are kinds of `make_vector`. Columns of x have means and
    deviations of their own.
    """
    if eps is None:
        # Among few rows some column has hardly any variance, which magnifies whatever error z has.
        eps = 1e-2 if shape.m > 16 else 0.5
    if op in OPS:
        kinds = {"bias": bias, "scale": scale, "vectors": vectors}
        return make_call(op, shape, numerics, device, **kinds, seed=seed)
    generator = torch.Generator(device).manual_seed(seed)
    n, dtype = shape.n, numerics.dtype

    def normal():
        return draw_normal(n, generator=generator)

    def values(low, high):
        return draw_uniform(n, generator=generator, low=low, high=high)

    if op in PRODUCT_OPS:
        x, weight = draw_matrices("normal", shape, generator)
        call = Call(op, x.to(dtype), weight.to(dtype), make_vector(bias, normal(), dtype))
        call = call.change(precision=numerics.precision, out_dtype=numerics.out_dtype)
    else:
        x = draw_normal(shape.m, n, generator=generator) * values(0.3, 2.0) + normal()
        call = Call(op, (3 * x if op == SOFTMAX else x).to(dtype))
        # The stand-alone batch norms have no out_dtype.
        takes_dtype = op in ROW_OPS and ROW_OPS[op].out_dtype
        call = call.change(out_dtype=numerics.out_dtype if takes_dtype else None)
    if op in SCALED_OPS:
        call = call.change(scale=make_vector(scale, normal().sign() * values(0.5, 2.0), dtype))
    if op in ROW_OPS:
        rows = ROW_OPS[op].vectors
        # None is told from ones and from zeros.
        drawn = {row.name: normal().sign() * values(0.5, 2.0) for row in rows}
        kinds = {row.name: "own" if row.required and vectors == "none" else vectors for row in rows}
        drawn = {name: make_vector(kinds[name], value, dtype) for name, value in drawn.items()}
        return call.change(eps=eps, **drawn)
    if op in TRAIN_OPS:
        count = torch.tensor(4, device=device)
        call = call.change(momentum=momentum, num_batches_tracked=count)
    return call.change(
        running_mean=make_vector(statistics, normal(), dtype),
        running_var=make_vector(statistics, values(0.2, 2.0), dtype),
        gamma=make_vector(vectors, values(0.5, 2.0), dtype),
        beta=make_vector(vectors, normal(), dtype),
        eps=eps,
    )


def make_distant_call(
    op: str,
    numerics: Numerics,
    ratio: float,
    device="cpu",
    *,
    shape: Shape = DISTANT_SHAPE,
    symmetric: bool = False,
) -> Call:
    """Columns of mean / standard deviation = `ratio`, behind a product that is exact.

    In front of the product stand small integers, of the mean the bias, so that what is left is the
    error of the statistics. 16-bit x and z would hold no such columns. `symmetric`: the means are
    exact, so that what is left is the error behind the statistics.
    """
    generator = torch.Generator(device).manual_seed(0)
    m, n, k = shape.m, shape.n, shape.k

    def integers(*size):
        return torch.randint(-4, 5, size, generator=generator, device=device).float()

    call = make_statistics_call(op, shape, numerics, device, scale="none")
    mean = (ratio * draw_uniform(n, generator=generator, low=2.0, high=3.0)).round()
    if op == NORM_TRAIN and not symmetric:
        return call.change(x=2.5 * draw_normal(m, n, generator=generator) + mean)
    x = integers(m, n if op == NORM_TRAIN else k)
    if symmetric:
        x = torch.cat([x[: m // 2], -x[: m // 2]])
    if op == NORM_TRAIN:
        return call.change(x=x + mean)
    weight = (integers(n, k) / 4).to(numerics.dtype)
    return call.change(x=x.to(numerics.dtype), weight=weight, bias=mean)


def make_special_statistics_call(op: str, numerics: Numerics, device="cpu") -> Call:
    """NaN and infinities of both signs, each in a row and a column of its own, beside finite ones.

    Along rows: 0 to 4 hold NaN, +inf, -inf, both infinities, and -inf alone. Batch norm: columns
    0 to 2 hold NaN and infinities, 5 to 7 have special vectors.
    """
    shape = Shape(24, 40, 64, "room beside the special rows")
    call = make_statistics_call(op, shape, numerics, device, vectors="fp32")
    special = torch.tensor([torch.nan, torch.inf, -torch.inf], device=device)
    if op in ROW_OPS:
        call.x[torch.arange(3), torch.tensor([1, 5, 7])] = special.to(call.x.dtype)
        call.x[3, 3], call.x[3, 4] = torch.inf, -torch.inf
        call.x[4] = -torch.inf
        call.x[5, 1:] = -torch.inf  # one element is left
        return call
    if op in (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN):
        call.bias[:3] = special.to(call.bias.dtype)
    elif op == NORM_TRAIN:
        call.x[2, :3] = special.to(call.x.dtype)
    for name, place in (("running_mean", 5), ("running_var", 6), ("gamma", 7)):
        getattr(call, name)[place] = torch.nan
    return call
