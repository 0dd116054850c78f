"""Bad input to the raw ops, with the message that each kernel gives: CPU, fake and CUDA alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from calls import (
    MORE_OPERANDS,
    NORM,
    NORM_OPS,
    NORM_SOFTMAX,
    OPS,
    PRODUCT_OPS,
    SCALED_OPS,
    TRAIN_OPS,
    Call,
    name_in_messages,
)

from cutlass_fused.epilogues import EPILOGUES
from cutlass_fused.epilogues._description import Row
from cutlass_fused.row_ops import ROW_OPS

M, N, K = 6, 10, 8
# Those whose x is a matrix, and what its sizes are called.
MATRIX_OPS = {
    op: "(M, K)" if op in PRODUCT_OPS else "(M, N)" for op in (*TRAIN_OPS, NORM_SOFTMAX, NORM)
}
OUT_DTYPE_OPS = (*PRODUCT_OPS, *(op for op, row_op in ROW_OPS.items() if row_op.out_dtype))
_DESCRIBED = EPILOGUES | ROW_OPS
# Those whose weight has the dtype of x; of others it may also be float32 beside x of 16 bits.
UNMIXED_OPS = tuple(op for op in PRODUCT_OPS if op not in EPILOGUES)


def make_good(op: str, device, dtype=torch.float16) -> Call:
    def make(*size):
        return torch.ones(size, dtype=dtype, device=device)

    call = Call(op, make(M, N))
    if op in PRODUCT_OPS:
        call = call.change(x=make(M, K), weight=make(N, K), bias=make(N), scale=make(N))
    if op in NORM_OPS:
        names = ("running_mean", "running_var", "gamma", "beta")
        call = call.change(**{name: make(N) for name in names})
    if op in _DESCRIBED:
        more = [v.name for v in _DESCRIBED[op].vectors if op in ROW_OPS or v.name in MORE_OPERANDS]
        call = call.change(**{name: make(N) for name in more})
    if op in TRAIN_OPS:
        call = call.change(num_batches_tracked=torch.zeros((), dtype=torch.int64, device=device))
    return call


@dataclasses.dataclass(frozen=True)
class BadCall:
    name: str
    spoil: Callable[[Call], Call]
    message: str  # behind the name of the op
    ops: tuple[str, ...] = PRODUCT_OPS


def replace(**functions):
    """Each named argument becomes function(argument)."""

    def spoil(call):
        return call.change(**{name: f(getattr(call, name)) for name, f in functions.items()})

    return spoil


def fill(*size, dtype=None):
    """A tensor like the argument, of this size."""
    return lambda tensor: torch.ones(size, dtype=dtype or tensor.dtype, device=tensor.device)


def set_value(value):
    return lambda _: value


def convert(dtype):
    return lambda tensor: tensor.to(dtype)


def make_bad_vectors():
    """Length, rank and dtype of every (N,) vector of every op."""
    where = {"bias": PRODUCT_OPS} | {
        name: NORM_OPS for name in ("running_mean", "running_var", "gamma", "beta")
    }
    for op, described in _DESCRIBED.items():
        for operand in described.vectors:
            if isinstance(operand, Row) and op not in where.get(operand.name, ()):
                where[operand.name] = (*where.get(operand.name, ()), op)
    for name, ops in where.items():
        for size in ((N - 1,), (N + 1,), (1,), (), (N, 1), (1, N), (0,)):
            yield BadCall(
                f"{name} of shape {size}",
                replace(**{name: fill(*size)}),
                f"{name} must have shape (N,) = ({N},), got {size}",
                ops,
            )
        for dtype in (torch.bfloat16, torch.float64, torch.int32):
            yield BadCall(
                f"{name} of {dtype}",
                replace(**{name: convert(dtype)}),
                f"{name} must be float16 (the dtype of x) or float32, got {str(dtype)[6:]}",
                ops,
            )


def make_bad_scales():
    for size in ((N - 1,), (2,), (N, 1), (1, N), (1, 1), (0,)):
        yield BadCall(
            f"scale of shape {size}",
            replace(scale=fill(*size)),
            f"scale must have one element or shape (N,) = ({N},), got {size}",
            SCALED_OPS,
        )
    yield BadCall(
        "scale of bfloat16",
        replace(scale=convert(torch.bfloat16)),
        "scale must be float16 (the dtype of x) or float32, got bfloat16",
        SCALED_OPS,
    )


def make_bad_batches():
    """What is no matrix, and in training a batch of one."""
    for op, names in MATRIX_OPS.items():
        for size in ((), (K,), (2, M, K)):
            yield BadCall(
                f"x of shape {size}",
                replace(x=fill(*size)),
                f"x must have 2 dimensions {names}, got shape {size}",
                (op,),
            )
    for op in TRAIN_OPS:
        row = (1, K if op in PRODUCT_OPS else N)
        yield BadCall(
            "one row",
            replace(x=fill(*row)),
            f"x must have more than 1 row when statistics are computed, got shape {row}",
            (op,),
        )


def make_bad_counts():
    for dtype in (torch.int32, torch.float32):
        yield BadCall(
            f"count of {dtype}",
            replace(num_batches_tracked=convert(dtype)),
            f"num_batches_tracked must be int64, got {str(dtype)[6:]}",
            TRAIN_OPS,
        )
    for size in ((2,), (0,), (N,)):
        yield BadCall(
            f"count of shape {size}",
            replace(num_batches_tracked=fill(*size)),
            f"num_batches_tracked must have one element, got shape {size}",
            TRAIN_OPS,
        )
    for missing in ((), ("running_mean",), ("running_var",)):
        without = {name: set_value(None) for name in ("num_batches_tracked", *missing)}
        yield BadCall(
            f"no momentum, no count, no {missing}",
            replace(momentum=set_value(None), **without),
            "num_batches_tracked must be a tensor where momentum is None, got None",
            TRAIN_OPS,
        )


def make_bad_updates():
    """What training updates has elements of its own, not one that stands for all."""
    for name in ("running_mean", "running_var"):
        yield BadCall(
            f"expanded {name}",
            replace(**{name: lambda vector: vector[:1].expand(N)}),
            f"{name} must have elements of its own, which are updated in place, got stride 0",
            TRAIN_OPS,
        )


BAD_CALLS = (
    *make_bad_batches(),
    BadCall(
        "x without dimension",
        replace(x=fill()),
        "x must have at least 1 dimension, got shape ()",
        (*OPS, *ROW_OPS),
    ),
    BadCall(
        "weight of 1 dimension",
        replace(weight=fill(3)),
        "weight must have 2 dimensions (N, K), got shape (3,)",
    ),
    BadCall(
        "weight of 3 dimensions",
        replace(weight=fill(2, N, K)),
        f"weight must have 2 dimensions (N, K), got shape (2, {N}, {K})",
    ),
    BadCall(
        "K of weight too small",
        replace(weight=fill(N, K - 1)),
        f"x must have {K - 1} columns, as weight ({N}, {K - 1}) has, got ({M}, {K})",
    ),
    BadCall(
        "K of weight too large",
        replace(weight=fill(N, K + 1)),
        f"x must have {K + 1} columns, as weight ({N}, {K + 1}) has, got ({M}, {K})",
    ),
    BadCall(
        "weight transposed",
        replace(weight=fill(K, N)),
        f"x must have {N} columns, as weight ({K}, {N}) has, got ({M}, {K})",
    ),
    BadCall(
        "K of a 1-D x",
        replace(x=fill(K + 1)),
        f"x must have {K} columns, as weight ({N}, {K}) has, got ({K + 1},)",
        OPS,
    ),
    BadCall(
        "weight of float32",
        replace(weight=convert(torch.float32)),
        "weight must have the dtype of x, float16, got float32",
        UNMIXED_OPS,
    ),
    BadCall(
        "x of bfloat16",
        replace(x=convert(torch.bfloat16)),
        "weight must have the dtype of x, bfloat16, got float16",
        UNMIXED_OPS,
    ),
    BadCall(
        "x of bfloat16, where weight may be float32",
        replace(x=convert(torch.bfloat16)),
        "weight must be bfloat16 (the dtype of x) or float32, got float16",
        tuple(EPILOGUES),
    ),
    BadCall(
        "weight of int32, where it may be float32",
        replace(weight=convert(torch.int32)),
        "weight must be float16 (the dtype of x) or float32, got int32",
        tuple(EPILOGUES),
    ),
    *make_bad_vectors(),
    *make_bad_scales(),
    *make_bad_counts(),
    *make_bad_updates(),
    BadCall(
        "unknown precision",
        replace(precision=set_value("fp8")),
        "precision must be 'ieee' or 'tf32', got 'fp8'",
    ),
    BadCall(
        "empty precision",
        replace(precision=set_value("")),
        "precision must be 'ieee' or 'tf32', got ''",
    ),
    BadCall(
        "result of the other 16-bit dtype",
        replace(out_dtype=set_value(torch.bfloat16)),
        "out_dtype must be float16 (the dtype of x) or float32, got bfloat16",
        OUT_DTYPE_OPS,
    ),
    BadCall(
        "result of float64",
        replace(out_dtype=set_value(torch.float64)),
        "out_dtype must be float16 (the dtype of x) or float32, got float64",
        OUT_DTYPE_OPS,
    ),
)

# Bad calls with float32 matrices, whose vectors have one dtype only.
BAD_FLOAT32_CALLS = (
    BadCall(
        "bias of float16",
        replace(bias=convert(torch.float16)),
        "bias must be float32 (the dtype of x), got float16",
    ),
    BadCall(
        "scale of bfloat16",
        replace(scale=convert(torch.bfloat16)),
        "scale must be float32 (the dtype of x), got bfloat16",
        SCALED_OPS,
    ),
    BadCall(
        "result of float16",
        replace(out_dtype=set_value(torch.float16)),
        "out_dtype must be float32 (the dtype of x), got float16",
        OUT_DTYPE_OPS,
    ),
    BadCall(
        "weight of float16",
        replace(weight=convert(torch.float16)),
        "weight must have the dtype of x, float32, got float16",
    ),
)


def list_bad_calls():
    """(op, dtype of the good call, BadCall, full message), with an id."""
    for dtype, table in ((torch.float16, BAD_CALLS), (torch.float32, BAD_FLOAT32_CALLS)):
        for bad in table:
            for op in bad.ops:
                yield f"{op}-{bad.name}", (op, dtype, bad, f"{name_in_messages(op)}: {bad.message}")


def list_wrong_dtypes():
    """dtypes that no device takes."""
    return (torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64)
