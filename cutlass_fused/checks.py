"""Checks of op arguments: each says what was expected and what was found.

They raise RuntimeError, and also work on the symbolic sizes that tracing brings: no check ties a
size to a number. The functionals call some of them, so TorchDynamo must be able to trace them.
"""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from .precision import PRECISIONS

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# The CPU takes float64 as well: gradcheck needs it, and it is the truth that tests compare with.
REFERENCE_DTYPES = (*KERNEL_DTYPES, torch.float64)


def name_in_messages(op: str) -> str:
    """What users call: the two ops of a batch norm stand under one function."""
    return op.removesuffix("_train").removesuffix("_inference")


def is_dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized


def refuse_kind(op: str, name: str, tensor: Tensor) -> NoReturn:
    """Raise for a tensor that is not dense."""
    found = f"one of layout {tensor.layout}"
    if tensor.is_nested:
        found = f"a nested one of layout {tensor.layout}"
    elif tensor.is_quantized:
        found = f"a quantized one of {_name(tensor.dtype)}"
    raise RuntimeError(f"{op}: {name} must be a dense tensor, got {found}")


def check_dense(op: str, x: Tensor) -> None:
    """x: in front of checks that would read its sizes, which some others do not have."""
    if not is_dense(x):
        refuse_kind(op, "x", x)


def check_x_dtype(op: str, x: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    _require(x.dtype in dtypes, lambda: f"{op}: x must be {_join(dtypes)}, got {_name(x.dtype)}")


def check_rank(op: str, x: Tensor) -> None:
    """x: any number of dimensions but none."""
    _require(
        x.dim() >= 1,
        lambda: f"{op}: x must have at least 1 dimension, got shape {tuple(x.shape)}",
    )


def check_like_x(op: str, name: str, other: Tensor, x: Tensor, dtype: torch.dtype) -> None:
    """Another matrix of the shape of x, of this dtype."""
    _check_device(op, name, other, x)
    must = f"{op}: {name} must " + ("have the dtype of x, " if dtype == x.dtype else "be ")
    _require(other.dtype == dtype, lambda: f"{must}{_name(dtype)}, got {_name(other.dtype)}")
    shape = tuple(other.shape)
    _require(
        other.shape == x.shape,
        lambda: f"{op}: {name} must have the shape of x, {tuple(x.shape)}, got shape {shape}",
    )


def check_wide_vector(op: str, name: str, vector: Tensor, x: Tensor, dtype: torch.dtype) -> None:
    """(N,) beside x (M, N), of this dtype."""
    _check_device(op, name, vector, x)
    _require(
        vector.dtype == dtype,
        lambda: f"{op}: {name} must be {_name(dtype)}, got {_name(vector.dtype)}",
    )
    _require(
        vector.dim() == 1 and vector.shape[0] == x.shape[1],
        lambda: f"{op}: {name} must have shape ({x.shape[1]},), got shape {tuple(vector.shape)}",
    )


def check_batch(op: str, x: Tensor, names: str) -> None:
    """x: a matrix; `names` of its sizes, "(M, N)" or "(M, K)"."""
    _require(
        x.dim() == 2,
        lambda: f"{op}: x must have 2 dimensions {names}, got shape {tuple(x.shape)}",
    )
    check_x_dtype(op, x, REFERENCE_DTYPES)


def check_rows(op: str, x: Tensor) -> None:
    """x: any number of rows but 1, whose variance would be 0 / 0."""
    # Not _require: this size may be one that tracing does not know, and is then checked later.
    torch._check(
        x.shape[0] != 1,
        lambda: (
            f"{op}: x must have more than 1 row when statistics are computed, "
            f"got shape {tuple(x.shape)}"
        ),
    )


def check_matrices(op: str, x: Tensor, weight: Tensor, may_mix: bool = False) -> None:
    """x: (..., K) and weight: (N, K) of one dtype, on one device. `may_mix`: beside x of 16 bits
    weight may also be float32."""
    check_rank(op, x)
    check_x_dtype(op, x, REFERENCE_DTYPES)
    _require(
        weight.dim() == 2,
        lambda: f"{op}: weight must have 2 dimensions (N, K), got shape {tuple(weight.shape)}",
    )
    may_mix = may_mix and x.dtype.itemsize == 2 and x.layout is torch.strided
    _require(
        weight.dtype == x.dtype or (may_mix and weight.dtype == torch.float32),
        lambda: (
            f"{op}: weight must be {_of_x_or_float32(x)}, got {_name(weight.dtype)}"
            if may_mix
            else f"{op}: weight must have the dtype of x, {_name(x.dtype)}, "
            f"got {_name(weight.dtype)}"
        ),
    )
    _check_device(op, "weight", weight, x)
    _require(
        weight.shape[1] == x.shape[-1],
        lambda: (
            f"{op}: x must have {weight.shape[1]} columns, as weight {tuple(weight.shape)} has, "
            f"got {tuple(x.shape)}"
        ),
    )


def check_weight(op: str, weight: Tensor, precision: str) -> None:
    """weight: (N, K), float32."""
    _require(
        weight.dim() == 2,
        lambda: f"{op}: weight must have 2 dimensions (N, K), got shape {tuple(weight.shape)}",
    )
    _require(
        weight.dtype == torch.float32,
        lambda: f"{op}: weight must be float32, got {_name(weight.dtype)}",
    )
    _check_precision(op, precision)


def check_y(op: str, y: Tensor, x: Tensor, weight: Tensor) -> None:
    """y: what x @ weight.T can be written to."""
    shape = (*x.shape[:-1], weight.shape[0])
    _require(
        y.shape == shape,
        lambda: f"{op}: y must have the shape of the product, {shape}, got shape {tuple(y.shape)}",
    )
    _check_device(op, "y", y, x)
    _require(
        y.dtype in (x.dtype, torch.float32),
        lambda: f"{op}: y must be float32 or have x's dtype, got {_name(y.dtype)}",
    )
    _require(y.is_contiguous(), lambda: f"{op}: y must be contiguous, got strides {y.stride()}")


def check_batches(op: str, x: Tensor, weight: Tensor, precision: str) -> None:
    """x: (B, M, K) and weight: (B, N, K) of one dtype, on one device."""
    for name, batch, shape in (("x", x, "(B, M, K)"), ("weight", weight, "(B, N, K)")):
        _require(
            batch.dim() == 3,
            lambda name=name, batch=batch, shape=shape: (
                f"{op}: {name} must have 3 dimensions {shape}, got shape {tuple(batch.shape)}"
            ),
        )
    check_x_dtype(op, x, REFERENCE_DTYPES if x.is_cpu else KERNEL_DTYPES)
    _require(
        weight.dtype == x.dtype,
        lambda: (
            f"{op}: weight must have the dtype of x, {_name(x.dtype)}, got {_name(weight.dtype)}"
        ),
    )
    _check_device(op, "weight", weight, x)
    _require(
        weight.shape[0] == x.shape[0] and weight.shape[2] == x.shape[2],
        lambda: (
            f"{op}: weight must have shape (B, N, K) = ({x.shape[0]}, *, {x.shape[2]}), "
            f"got {tuple(weight.shape)}"
        ),
    )
    _check_precision(op, precision)


def check_vector(op: str, name: str, vector: Tensor | None, x: Tensor, n: int) -> None:
    """vector: (N,), of the dtype of x or float32, or absent."""
    if vector is None:
        return
    _check_device(op, name, vector, x)
    _check_vector_dtype(op, name, vector, x)
    _require(
        vector.dim() == 1 and vector.shape[0] == n,
        lambda: f"{op}: {name} must have shape (N,) = ({n},), got {tuple(vector.shape)}",
    )


def check_batch_norm(
    op: str,
    x: Tensor,
    n: int,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
) -> None:
    """The vectors of a batch norm over n columns."""
    check_vector(op, "running_mean", running_mean, x, n)
    check_vector(op, "running_var", running_var, x, n)
    check_vector(op, "gamma", gamma, x, n)
    check_vector(op, "beta", beta, x, n)


def check_linear_batch_norm(
    op: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    precision: str,
    out_dtype: torch.dtype | None,
    may_mix: bool = False,
) -> None:
    """The arguments that every op with a product and a batch norm has."""
    check_matrices(op, x, weight, may_mix)
    n = weight.shape[0]
    check_vector(op, "bias", bias, x, n)
    check_row_or_scalar(op, "scale", scale, x, n)
    check_batch_norm(op, x, n, running_mean, running_var, gamma, beta)
    check_options(op, x, precision, out_dtype)


def check_row_or_scalar(op: str, name: str, scale: Tensor | None, x: Tensor, n: int) -> None:
    """scale: (), (1,) or (N,), of the dtype of x or float32, or absent."""
    if scale is None:
        return
    _check_device(op, name, scale, x)
    _check_vector_dtype(op, name, scale, x)
    _require(
        scale.dim() == 0 or (scale.dim() == 1 and (scale.shape[0] == 1 or scale.shape[0] == n)),
        lambda: (
            f"{op}: {name} must have one element or shape (N,) = ({n},), got {tuple(scale.shape)}"
        ),
    )


def check_updated(
    op: str,
    num_batches_tracked: Tensor | None,
    momentum: float | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    x: Tensor,
) -> None:
    """What training writes to. num_batches_tracked: one int64 number; absent only where no running
    statistic needs it.
    """
    _check_updatable(op, "running_mean", running_mean)
    _check_updatable(op, "running_var", running_var)
    _check_updatable(op, "num_batches_tracked", num_batches_tracked)
    _check_own_elements(op, "running_mean", running_mean)
    _check_own_elements(op, "running_var", running_var)
    if num_batches_tracked is None:
        _require(
            momentum is not None or (running_mean is None and running_var is None),
            lambda: f"{op}: num_batches_tracked must be a tensor where momentum is None, got None",
        )
        return
    _check_device(op, "num_batches_tracked", num_batches_tracked, x)
    _require(
        num_batches_tracked.dtype == torch.int64,
        lambda: f"{op}: num_batches_tracked must be int64, got {_name(num_batches_tracked.dtype)}",
    )
    _require(
        num_batches_tracked.numel() == 1,
        lambda: (
            f"{op}: num_batches_tracked must have one element, "
            f"got shape {tuple(num_batches_tracked.shape)}"
        ),
    )


def check_centre(op: str, centre: Tensor | None, x: Tensor, n: int) -> None:
    """centre: (N,), float32 (float64 for float64 inputs), contiguous, or absent."""
    if centre is None:
        return
    _check_device(op, "centre", centre, x)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    _require(
        centre.dtype == dtype,
        lambda: f"{op}: centre must be {_name(dtype)}, got {_name(centre.dtype)}",
    )
    _require(
        centre.dim() == 1 and centre.shape[0] == n,
        lambda: f"{op}: centre must have shape (N,) = ({n},), got {tuple(centre.shape)}",
    )
    _require(
        centre.stride(0) == 1 or n <= 1,
        lambda: f"{op}: centre must be contiguous, got stride {centre.stride(0)}",
    )
    _check_updatable(op, "centre", centre)


def find_out_dtype(
    op: str, x: Tensor, out_dtype: torch.dtype | None, out: str | None
) -> torch.dtype | None:
    """out_dtype, or the dtype that `out` names."""
    if out is None:
        return out_dtype
    _require(
        out_dtype is None,
        lambda: f"{op}: out_dtype must be None beside out, got {_name(out_dtype)}",
    )
    for dtype in (x.dtype, torch.float32):
        if out == _name(dtype):
            return dtype
    raise RuntimeError(f"{op}: out_dtype must be {_of_x_or_float32(x)}, got {out}")


def check_options(op: str, x: Tensor, precision: str, out_dtype: torch.dtype | None) -> None:
    _check_precision(op, precision)
    check_out_dtype(op, x, out_dtype)


def check_out_dtype(op: str, x: Tensor, out_dtype: torch.dtype | None) -> None:
    _require(
        out_dtype is None or out_dtype == x.dtype or out_dtype == torch.float32,
        lambda: f"{op}: out_dtype must be {_of_x_or_float32(x)}, got {_name(out_dtype)}",
    )


def _check_precision(op: str, precision: str) -> None:
    _require(
        precision in PRECISIONS,
        lambda: f"{op}: precision must be 'ieee' or 'tf32', got {precision!r}",
    )


def _check_device(op: str, name: str, tensor: Tensor, x: Tensor) -> None:
    _require(
        tensor.device == x.device,
        lambda: f"{op}: {name} must be on the device of x, {x.device}, got {tensor.device}",
    )


def _check_updatable(op: str, name: str, tensor: Tensor | None) -> None:
    """tensor: one that PyTorch lets be written to, before another has been."""
    if torch.compiler.is_dynamo_compiling():
        return  # TorchDynamo cannot ask; the op does
    _require(
        tensor is None or not tensor.is_inference() or torch.is_inference_mode_enabled(),
        lambda: (
            f"{op}: {name} must be no tensor of torch.inference_mode, which cannot be updated "
            f"outside it, got one"
        ),
    )


def _check_own_elements(op: str, name: str, vector: Tensor | None) -> None:
    """vector: not one element that stands for all, as `expand` makes it."""
    _require(
        vector is None or vector.stride(0) != 0 or vector.shape[0] <= 1,
        lambda: (
            f"{op}: {name} must have elements of its own, which are updated in place, got stride 0"
        ),
    )


def _check_vector_dtype(op: str, name: str, vector: Tensor, x: Tensor) -> None:
    _require(
        vector.dtype == x.dtype or vector.dtype == torch.float32,
        lambda: f"{op}: {name} must be {_of_x_or_float32(x)}, got {_name(vector.dtype)}",
    )


def _require(condition: bool, message: Callable[[], str]) -> None:
    """torch._check, but TorchDynamo can trace it: not so a message that refers to arguments."""
    if not condition:
        raise RuntimeError(message())


def _of_x_or_float32(x: Tensor) -> str:
    of_x = f"{_name(x.dtype)} (the dtype of x)"
    return of_x if x.dtype == torch.float32 else f"{of_x} or float32"


def _name(dtype: torch.dtype) -> str:
    return repr(dtype).removeprefix("torch.")


def _join(dtypes: tuple[torch.dtype, ...]) -> str:
    *others, last = map(_name, dtypes)
    return f"{', '.join(others)} or {last}"
