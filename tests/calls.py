"""One call of an op, as data: to be run, repeated in float64, cut to some rows, or spoilt."""

from __future__ import annotations

import dataclasses
import math

import torch

from cutlass_fused import reference

LINEAR = "linear"
LEAKY = "linear_scale_leaky_relu"
BATCH_NORM = "linear_scale_batch_norm_inference"
OPS = (LINEAR, LEAKY, BATCH_NORM)

# Argument order of each schema.
ARGUMENTS = {
    LINEAR: ("x", "weight", "bias", "precision", "out_dtype"),
    LEAKY: (
        *("x", "weight", "bias", "scale", "multiplier", "negative_slope"),
        *("precision", "out_dtype"),
    ),
    BATCH_NORM: (
        *("x", "weight", "bias", "scale", "running_mean", "running_var", "gamma", "beta", "eps"),
        *("precision", "out_dtype"),
    ),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """The arguments of one call of `op`; those that `op` does not take are ignored."""

    op: str
    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    multiplier: float = 1.0
    negative_slope: float = 0.01
    running_mean: torch.Tensor | None = None
    running_var: torch.Tensor | None = None
    gamma: torch.Tensor | None = None
    beta: torch.Tensor | None = None
    eps: float = 1e-5
    precision: str = "ieee"
    out_dtype: torch.dtype | None = None

    @property
    def result_dtype(self) -> torch.dtype:
        return self.out_dtype or self.x.dtype

    @property
    def result_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:-1], self.weight.shape[0])

    @property
    def m(self) -> int:
        return math.prod(self.x.shape[:-1])

    @property
    def k(self) -> int:
        return self.x.shape[-1]

    def change(self, **arguments) -> Call:
        return dataclasses.replace(self, **arguments)

    def arguments(self) -> tuple:
        return tuple(getattr(self, name) for name in ARGUMENTS[self.op])

    def overload(self):
        return getattr(torch.ops.cutlass_fused, self.op).default

    def run(self) -> torch.Tensor:
        """The op itself, whatever kernel the device of x has."""
        return self.overload()(*self.arguments())

    def refer(self) -> torch.Tensor:
        """The plain PyTorch definition."""
        return getattr(reference, self.op)(*self.arguments())

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that the op takes in this call, by name."""
        arguments = zip(ARGUMENTS[self.op], self.arguments(), strict=True)
        return {name: value for name, value in arguments if isinstance(value, torch.Tensor)}

    def map_tensors(self, function) -> Call:
        return self.change(**{name: function(value) for name, value in self.tensors().items()})

    def in_float64(self) -> Call:
        """The same numbers, computed and returned in float64."""
        return self.map_tensors(torch.Tensor.double).change(out_dtype=None)

    def flatten(self) -> Call:
        """x as a matrix of m rows."""
        return self.change(x=self.x.reshape(self.m, self.k))

    def take_rows(self, rows) -> Call:
        """The call on these rows of the flattened x; None takes all."""
        flat = self.flatten()
        return flat if rows is None else flat.change(x=flat.x[rows])
