"""What is run under a sanitizer: units, each a process of its own, that together launch every
kernel of the library.

A unit's name is what a user types. FAMILIES says of the kernels by their names which units launch
them: a new kernel needs a unit that does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from calls import OPS, PRODUCT_OPS, TRAIN_OPS
from cases import NUMERICS
from cases_statistics import OPS_AND_NUMERICS
from sanitized_fp32 import run_batches, run_mixed, run_shares, run_sums
from sanitized_gradients import run_gradients
from sanitized_products import run_all
from sanitized_programs import run_elementwise, run_open_products, run_rows
from sanitized_rows import list_statistics_calls, run_statistics, run_statistics_sm80
from sanitized_splits import run_renewed

from cutlass_fused.row_ops import ROW_OPS

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Programs within products of 16 bits also write fp32.
OPEN_NUMERICS = NUMERICS


def _run_statistics(op, numerics, single) -> int:
    launches = sum(map(run_statistics, list_statistics_calls(op, numerics)))
    if op in TRAIN_OPS and op in PRODUCT_OPS:
        launches += run_statistics_sm80(op, numerics)
    return launches


def _list_units() -> dict[str, Callable[[bool], int]]:
    """By name: what runs it, given whether few calls are to do, and returns how many there were."""
    units = {}
    for op in OPS:
        for numerics in NUMERICS:
            units[f"{op} {numerics}"] = functools.partial(run_all, op, numerics)
    for name in ("bf16", "fp16"):
        units[f"mixed {name}"] = lambda single, d=DTYPES[name]: run_mixed(d)
    units |= {"shares": run_shares, "sums": run_sums, "batches": run_batches}
    units["renewed"] = run_renewed
    for name, dtype in DTYPES.items():
        units[f"gradients {name}"] = lambda single, d=dtype: run_gradients(d)
    for op, numerics in OPS_AND_NUMERICS:
        if op not in OPS:
            units[f"{op} {numerics}"] = functools.partial(_run_statistics, op, numerics)
    for numerics in OPEN_NUMERICS:
        units[f"open {numerics}"] = lambda single, n=numerics: run_open_products(n)
    for name, dtype in DTYPES.items():
        units[f"elementwise {name}"] = lambda single, d=dtype: run_elementwise(d)
        units[f"along rows {name}"] = lambda single, d=dtype: run_rows(d)
    return units


UNITS = _list_units()

_PRODUCTS = tuple(OPS)
_TRAIN = tuple(op for op in TRAIN_OPS if op in PRODUCT_OPS)
_SOFTMAX = ("softmax", *(op for op in PRODUCT_OPS if "softmax" in op))
# Kernel, by its name without arguments -> how the names of the units begin that launch it.
FAMILIES = {
    "gemm_sm90": (*_PRODUCTS, *_TRAIN),
    "gemm_sm80": (*_PRODUCTS, *_TRAIN),
    "gemm_simt": _PRODUCTS,
    "gemm_short_k": _PRODUCTS,
    "gemm_tf32x3": (*_PRODUCTS, "shares", "sums", "batches"),
    "gemm_tf32x3_sm90": (*_PRODUCTS, "shares", "sums"),
    "add_parts_tf32x3": (*_PRODUCTS, "shares", "sums"),
    "gemm_mixed": ("mixed",),
    "repair_rows": _PRODUCTS,
    "repair_rows_tf32x3": _PRODUCTS,
    "apply_epilogue": _PRODUCTS,
    "copy_rows": _PRODUCTS,
    "split_rows": (*_PRODUCTS, "renewed"),
    "split_columns": (*_PRODUCTS, "sums"),
    "split_short_columns": (*_PRODUCTS, "sums"),
    "clear_columns": (*_PRODUCTS, "sums"),
    "clear_parts": _TRAIN,
    "row_softmax": _SOFTMAX,
    "row_softmax_short": _SOFTMAX,
    "row_softmax_wide": ("softmax",),
    "row_softmax_stream": _SOFTMAX,
    "column_statistics": ("batch_norm_train",),
    "merge_statistics": (*_TRAIN, "batch_norm_train"),
    "repair_and_merge": _TRAIN,
    "count_batch": (*_TRAIN, "batch_norm_train"),
    "normalize": (*_TRAIN, "batch_norm_train", "batch_norm_inference"),
    "normalize_strips": ("linear_scale_batch_norm_train",),
    "batch_norm_cluster": ("batch_norm_train",),
    "leaky_relu_gradient": ("gradients",),
    "join_column_sums": ("gradients",),
    "add_up_batch_norm_gradient": ("gradients",),
    "join_batch_norm_gradient": ("gradients",),
    "apply_batch_norm_gradient": ("gradients",),
    "differentiate_batch_norm_on_chip": ("gradients",),
    "unscale_columns": ("gradients",),
    "scale_gradient": ("gradients",),
    "softmax_gradient": ("gradients",),
    "softmax_gradient_short": ("gradients",),
    # Linked while a program runs.
    "cutlass_fused_open_sm90": ("open",),
    "cutlass_fused_open_sm80": ("open",),
    "cutlass_fused_open_tf32": ("open tf32",),
    "cutlass_fused_open_tf32x3": ("open ieee",),
    "cutlass_fused_open_repair": ("open",),
    "cutlass_fused_open_repair_of_split": ("open",),
    "cutlass_fused_pointwise": ("elementwise",),
    "cutlass_fused_rows": ("along rows",),
}
# An op along rows has units by itself, and names its kernels.
for _op, _row_op in ROW_OPS.items():
    for _kernel in _row_op.kernels:
        FAMILIES.setdefault(_kernel, (_op,))


def find_family(short_name: str) -> str:
    """The key of FAMILIES for a kernel, as shorten_kernel has it; KeyError where there is none."""
    base = short_name.partition("<")[0]
    if base in FAMILIES:
        return base
    # With the tile behind it.
    for family in FAMILIES:
        if family.startswith("cutlass_fused_open_") and base.startswith(f"{family}_"):
            return family
    raise KeyError(f"no unit launches {short_name}")


def list_units(family: str) -> list[str]:
    begin = tuple(f"{word} " for word in FAMILIES[family])
    return [name for name in UNITS if f"{name} ".startswith(begin)]
