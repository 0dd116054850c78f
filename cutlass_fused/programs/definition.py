"""The ops of programs in plain PyTorch: their documentation, their CPU kernels, their fakes, and
what tests compare the GPU kernels with."""

import math

import torch
from torch import Tensor

from ..checks import (
    KERNEL_DTYPES,
    REFERENCE_DTYPES,
    check_dense,
    check_matrices,
    check_options,
    check_rank,
    check_x_dtype,
)
from ..reference._arithmetic import compute_dtype, product
from .operands import check_operand, find_kind, take_operand
from .parse import parse
from .program import SUM, Program, run_whole


def apply_program(
    acc: Tensor,
    operands: list[Tensor],
    program: str,
    out: str | None = None,
    asynchronous: bool = False,
) -> list[Tensor]:
    """y, ... = program(acc, operands), element by element, or along rows of the program's columns.

    Args:
        acc: (..., N); float16, bfloat16 or float32 (here also float64).
        operands: as many as the program says, each of any of these dtypes: () or (1,), (N,),
            (..., 1), or (..., N).
        program: its text (cutlass_fused.programs).
        out: the dtypes of the results by name: one for all, or with commas between; None is that
            of acc. "sum:float32" makes a result the sum over the rows. A program along rows has
            none.
        asynchronous: on a GPU, whether a kernel is linked on another thread, until when PyTorch's
            ops run.

    Returns:
        what the program returns, each (..., N / width) and contiguous; (N,) if it is a sum.

    Numerics: in fp32 (float64 for float64 acc), each word rounded as PyTorch's op of that name
    rounds; the results once more, to their dtypes. Sums are those of what is not rounded, and on a
    GPU are added up in the same order by each call.

    Raises:
        RuntimeError: a tensor does not fit, or the program is none; on a GPU also where a graph is
            captured before a kernel was linked. Where none can be linked, as without NVRTC, it runs
            by PyTorch's ops.
    """
    op = "apply_program"
    check_dense(op, acc)
    check_x_dtype(op, acc, REFERENCE_DTYPES)
    check_rank(op, acc)
    parsed = _read(op, program, operands, acc.shape[-1])
    for index, operand in enumerate(operands):
        check_operand(op, f"operands[{index}]", operand, acc)
    results = _find_results(op, out, acc.dtype, parsed, may_sum=True)
    return _run(op, parsed, acc.to(compute_dtype(acc)), operands, results)


def linear_epilogue(
    x: Tensor,
    weight: Tensor,
    operands: list[Tensor],
    program: str,
    precision: str = "ieee",
    out: str | None = None,
    weight_split: Tensor | None = None,
    asynchronous: bool = False,
) -> list[Tensor]:
    """y, ... = program(x @ weight.T, operands): apply_program of a product, which is not rounded in
    between.

    Args:
        x, weight, precision, weight_split: as of linear.
        operands, program, asynchronous: as of apply_program, beside (..., N).
        out: as of apply_program, but no sum; None is the dtype of x.
    """
    op = "linear_epilogue"
    check_matrices(op, x, weight, may_mix=True)
    check_options(op, x, precision, None)
    parsed = _read(op, program, operands, weight.shape[0])
    for index, operand in enumerate(operands):
        check_operand(op, f"operands[{index}]", operand, x)
    results = _find_results(op, out, x.dtype, parsed, may_sum=False)
    return _run(op, parsed, product(x, weight, None), operands, results)


def run_program(
    acc: Tensor, operands: list[Tensor], program: str, out: str | None = None
) -> list[Tensor]:
    """apply_program by PyTorch's own ops, a kernel for each word, on any device: what the kernels'
    ops call where no kernel can be linked."""
    with torch.no_grad():
        return apply_program(acc, operands, program, out)


def _read(op: str, program: str, operands: list[Tensor], n: int) -> Program:
    try:
        parsed = parse(program)
    except ValueError as error:
        raise RuntimeError(f"{op}: program: {error}") from None
    if parsed.operands != len(operands):
        raise RuntimeError(
            f"{op}: there must be {parsed.operands} operands, as the program says, "
            f"got {len(operands)}"
        )
    if parsed.columns not in (0, n):
        raise RuntimeError(f"{op}: N must be {parsed.columns}, as the program says, got {n}")
    return parsed


def _find_results(
    op: str, out: str | None, dtype: torch.dtype, program: Program, may_sum: bool
) -> list[tuple[torch.dtype, bool]]:
    """Of each its dtype, and whether it is the sum over the rows."""
    count = len(program.outputs)
    if out is None:
        return [(dtype, False)] * count
    names = {str(each).removeprefix("torch."): (each, False) for each in KERNEL_DTYPES}
    if dtype == torch.float64:
        names["float64"] = (dtype, False)
    if may_sum:
        names |= {f"{SUM}{name}": (each, True) for name, (each, _) in names.items()}
    found = [names.get(name) for name in out.split(",")]
    if None in found:
        or_sum = f", or one of them behind {SUM}" if may_sum else ""
        raise RuntimeError(f"{op}: out must name float16, bfloat16 or float32{or_sum}, got {out}")
    found = found * count if len(found) == 1 else found
    if len(found) != count:
        raise RuntimeError(f"{op}: out must name one dtype or {count}, got {out}")
    if program.columns and any(is_sum for _, is_sum in found):
        must = "out must name no sum of a program that adds or compares along rows"
        raise RuntimeError(f"{op}: {must}, got {out}")
    return found


def _run(
    op: str,
    program: Program,
    z: Tensor,
    operands: list[Tensor],
    results: list[tuple[torch.dtype, bool]],
) -> list[Tensor]:
    acc = z.reshape(math.prod(z.shape[:-1]), z.shape[-1])
    taken = [
        take_operand(operand, find_kind(op, f"operands[{i}]", operand, z, z.shape[-1]), acc)
        for i, operand in enumerate(operands)
    ]
    # Copies, since an output may be an operand, or another output.
    return [
        (y.sum(0) if is_sum else y.reshape(*z.shape[:-1], y.shape[-1])).to(
            dtype, copy=True, memory_format=torch.contiguous_format
        )
        for y, (dtype, is_sum) in zip(run_whole(program, acc, taken), results, strict=True)
    ]
