"""What every definition computes with: the dtype of sums, the product, the one rounding."""

import torch
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of sums and of the tail: float64 for float64 inputs, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """z in the compute dtype; vectors of 16 bits are promoted to it wherever they meet it."""
    dtype = compute_dtype(x)
    z = torch.matmul(x.to(dtype), weight.to(dtype).t())
    return z if bias is None else z + bias


def at_least_one(size):
    """max(size, 1), also of the symbolic sizes that tracing brings. TorchDynamo, which has symbols
    of its own for them, refuses torch.sym_max of a number."""
    return torch.sym_max(size, 1) if isinstance(size, torch.SymInt) else max(size, 1)


def round_to(y: Tensor, dtype: torch.dtype) -> Tensor:
    return y.to(dtype).contiguous()


def round_kept(
    z: Tensor, keep: bool, dtype: torch.dtype, mean: Tensor, centre: Tensor | None
) -> Tensor:
    """z rounded, or none of its rows; where there is a centre, less its mean, of which the centre
    becomes what had been rounded off."""
    if centre is not None:
        z = z - mean
        centre.copy_(z.sum(0) / at_least_one(z.shape[0]))
    return round_to(z, dtype) if keep else z.new_empty((0, z.shape[1]), dtype=dtype)
