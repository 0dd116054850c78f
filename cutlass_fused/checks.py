"""Checks of op arguments: each says what was expected and what was found.

They raise RuntimeError through `torch._check`, which also works on the symbolic sizes that tracing
brings: no check ties a size to a number.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .precision import PRECISIONS

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# The CPU takes float64 as well: gradcheck needs it, and it is the truth that tests compare with.
REFERENCE_DTYPES = (*KERNEL_DTYPES, torch.float64)


def check_x_dtype(op: str, x: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    torch._check(
        x.dtype in dtypes,
        lambda: f"{op}: x must be {_join(dtypes)}, got {_name(x.dtype)}",
    )


def check_matrices(op: str, x: Tensor, weight: Tensor) -> None:
    """x: (..., K) and weight: (N, K) of one dtype, on one device."""
    torch._check(
        x.dim() >= 1,
        lambda: f"{op}: x must have at least 1 dimension, got shape {tuple(x.shape)}",
    )
    check_x_dtype(op, x, REFERENCE_DTYPES)
    torch._check(
        weight.dim() == 2,
        lambda: f"{op}: weight must have 2 dimensions (N, K), got shape {tuple(weight.shape)}",
    )
    torch._check(
        weight.dtype == x.dtype,
        lambda: (
            f"{op}: weight must have the dtype of x, {_name(x.dtype)}, got {_name(weight.dtype)}"
        ),
    )
    _check_device(op, "weight", weight, x)
    torch._check(
        weight.shape[1] == x.shape[-1],
        lambda: (
            f"{op}: weight must have shape (N, K) = (*, {x.shape[-1]}), got {tuple(weight.shape)}"
        ),
    )


def check_vector(op: str, name: str, vector: Tensor | None, x: Tensor, weight: Tensor) -> None:
    """vector: (N,), of the dtype of x or float32, or absent."""
    if vector is None:
        return
    _check_device(op, name, vector, x)
    _check_vector_dtype(op, name, vector, x)
    n = weight.shape[0]
    torch._check(
        vector.dim() == 1 and vector.shape[0] == n,
        lambda: f"{op}: {name} must have shape (N,) = ({n},), got {tuple(vector.shape)}",
    )


def check_scale(op: str, scale: Tensor | None, x: Tensor, weight: Tensor) -> None:
    """scale: (), (1,) or (N,), of the dtype of x or float32, or absent."""
    if scale is None:
        return
    _check_device(op, "scale", scale, x)
    _check_vector_dtype(op, "scale", scale, x)
    n = weight.shape[0]
    _require(
        scale.dim() == 0 or (scale.dim() == 1 and (scale.shape[0] == 1 or scale.shape[0] == n)),
        lambda: (
            f"{op}: scale must have one element or shape (N,) = ({n},), got {tuple(scale.shape)}"
        ),
    )


def check_options(op: str, x: Tensor, precision: str, out_dtype: torch.dtype | None) -> None:
    _require(
        precision in PRECISIONS,
        lambda: f"{op}: precision must be 'ieee' or 'tf32', got {precision!r}",
    )
    _require(
        out_dtype is None or out_dtype == x.dtype or out_dtype == torch.float32,
        lambda: f"{op}: out_dtype must be {_of_x_or_float32(x)}, got {_name(out_dtype)}",
    )


def _check_device(op: str, name: str, tensor: Tensor, x: Tensor) -> None:
    _require(
        tensor.device == x.device,
        lambda: f"{op}: {name} must be on the device of x, {x.device}, got {tensor.device}",
    )


def _check_vector_dtype(op: str, name: str, vector: Tensor, x: Tensor) -> None:
    _require(
        vector.dtype == x.dtype or vector.dtype == torch.float32,
        lambda: f"{op}: {name} must be {_of_x_or_float32(x)}, got {_name(vector.dtype)}",
    )


def _require(condition: bool, message: Callable[[], str]) -> None:
    """torch._check for what is no symbolic size of a batch: functional.py calls these checks where
    TorchDynamo traces them, and it cannot trace a message that refers to the arguments."""
    if not condition:
        raise RuntimeError(message())


def _of_x_or_float32(x: Tensor) -> str:
    of_x = f"{_name(x.dtype)} (the dtype of x)"
    return of_x if x.dtype == torch.float32 else f"{of_x} or float32"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _join(dtypes: tuple[torch.dtype, ...]) -> str:
    *others, last = map(_name, dtypes)
    return f"{', '.join(others)} or {last}"
