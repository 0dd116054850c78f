"""The yardstick of batch norm and of ops along rows: what a user writes, in its own dtypes."""

from __future__ import annotations

import torch
from accuracy import eager_product, is_widened, matmul_settings
from calls import (
    NORM_OPS,
    PRODUCT_OPS,
    SCALE_NORM_TRAIN,
    SOFTMAX_OPS,
    TRAIN_OPS,
    Call,
)
from torch.nn import functional as F

from cutlass_fused.row_ops import ROW_OPS


def run_eager_all(call: Call) -> dict[str, torch.Tensor]:
    """Everything that the op of this call writes, by name, as PyTorch's own modules give it."""
    dtype = call.result_dtype
    if call.op in ROW_OPS:
        return {"y": _run_plain(call)}
    updated = {name: tensor.dtype for name, tensor in call.updated().items()}
    with matmul_settings(call.precision):
        z = eager_product(call) if call.op in PRODUCT_OPS else call.x
    if is_widened(call):
        call = call.map_numbers(torch.Tensor.float)
    if call.op == SCALE_NORM_TRAIN and call.scale is not None:
        z = z * call.scale
    if call.op in TRAIN_OPS:
        z = z.to(dtype)  # in front of the statistics of a batch a model stores it
    y = _normalize(call, z)
    if call.op in SOFTMAX_OPS:
        y = F.softmax(y if call.scale is None else call.scale * y, dim=-1)
    results = {"y": y.to(dtype)}
    if call.op in PRODUCT_OPS:
        results["z"] = (z if call.keep_z else z[:0]).to(dtype)
    if call.op in TRAIN_OPS:
        results |= _compute_statistics(z, call.eps)
        moved = _move_statistics(call, z)
        results |= {name: moved[name].to(updated[name]) for name in updated}
    return results


def _run_plain(call: Call) -> torch.Tensor:
    row_op, operands = ROW_OPS[call.op], [getattr(call, name) for name in ROW_OPS[call.op].names]
    if row_op.plain is None:
        wide = torch.float64 if call.x.dtype == torch.float64 else torch.float32
        return row_op.formula(call.x.to(wide), *operands).to(call.result_dtype)
    options = {"dtype": call.result_dtype} if row_op.out_dtype else {}
    return row_op.plain(call.x, *operands, **options)


def _normalize(call: Call, z: torch.Tensor) -> torch.Tensor:
    assert call.op in NORM_OPS
    if z.numel() == 0:
        return z
    if not z.is_cuda:
        return _centre(call, z)
    gamma, beta = _agree(z, call.gamma, call.beta)
    if call.op in TRAIN_OPS:
        return F.batch_norm(z, None, None, gamma, beta, True, 0.0, call.eps)
    mean, variance, gamma, beta = _agree(z, call.running_mean, call.running_var, gamma, beta)
    return F.batch_norm(z, mean, variance, gamma, beta, False, 0.0, call.eps)


def _centre(call: Call, z: torch.Tensor) -> torch.Tensor:
    """What PyTorch's CUDA kernel does; that for the CPU folds the mean into one shift."""
    if call.op in TRAIN_OPS:
        mean, rstd = _compute_statistics(z, call.eps).values()
    else:
        mean, rstd = call.running_mean, 1 / torch.sqrt(call.running_var.float() + call.eps)
    y = (z.float() - mean) * rstd
    y = y if call.gamma is None else y * call.gamma
    return (y if call.beta is None else y + call.beta).to(z.dtype)


def _agree(z: torch.Tensor, *vectors):
    """PyTorch takes vectors of the dtype of z, or all of them in fp32."""
    dtypes = {vector.dtype for vector in vectors if vector is not None}
    dtype = z.dtype if z.dtype.itemsize > 2 or dtypes == {z.dtype} else torch.float32
    return [None if vector is None else vector.contiguous().to(dtype) for vector in vectors]


def _compute_statistics(z: torch.Tensor, eps: float) -> dict[str, torch.Tensor]:
    """What PyTorch's batch norm finds: running statistics that are all of the last batch.

    In fp32: of fp16 numbers that are not aligned its CUDA kernel rounds the mean to fp16.
    """
    m, n = z.shape
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    z = z.to(dtype)
    mean, unbiased = z.new_zeros(n, dtype=dtype), z.new_zeros(n, dtype=dtype)
    if z.numel() > 0:
        F.batch_norm(z, mean, unbiased, None, None, True, 1.0, eps)
    variance = unbiased.double() * (max(m - 1, 0) / max(m, 1))
    return {"mean": mean, "rstd": (1 / torch.sqrt(variance + eps)).to(dtype)}


def _move_statistics(call: Call, z: torch.Tensor) -> dict[str, torch.Tensor]:
    call = call.copy_updated()
    count, momentum = call.num_batches_tracked, call.momentum
    if count is not None:
        count += 1
    if momentum is None:
        momentum = 0.0 if count is None else 1.0 / float(count)
    mean, variance = call.running_mean, call.running_var
    if z.numel() > 0 and not (mean is None and variance is None):
        # PyTorch moves both or none; the copies are contiguous, which it relies on.
        mean = torch.zeros_like(variance) if mean is None else mean.contiguous()
        variance = torch.zeros_like(mean) if variance is None else variance.contiguous()
        mean, variance = _agree(z, mean, variance)
        F.batch_norm(z, mean, variance, None, None, True, momentum, call.eps)
    return {"running_mean": mean, "running_var": variance, "num_batches_tracked": count}
