"""One call of an op, as data: to be run, repeated in float64, cut to some rows, or spoilt."""

from __future__ import annotations

import dataclasses
import math

import torch

from cutlass_fused import reference
from cutlass_fused.epilogues import EPILOGUES
from cutlass_fused.epilogues._description import Number
from cutlass_fused.row_ops import ROW_OPS

LINEAR = "linear"
LEAKY = "linear_scale_leaky_relu"
BATCH_NORM = "linear_scale_batch_norm_inference"
# A product with its tail: one result, judged element by element.
OPS = (LINEAR, LEAKY, BATCH_NORM)
OPS += tuple(op for op in EPILOGUES if op not in OPS)

SCALE_NORM_TRAIN = "linear_scale_batch_norm_train"
NORM_SOFTMAX_TRAIN = "linear_batch_norm_scale_softmax_train"
NORM_SOFTMAX = "linear_batch_norm_scale_softmax_inference"
NORM_TRAIN = "batch_norm_train"
NORM = "batch_norm_inference"
SOFTMAX = "softmax"
# Statistics over a column or a row: more than one result, or a rule of its own.
STATISTICS_OPS = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX, NORM_TRAIN, NORM, SOFTMAX)
STATISTICS_OPS += tuple(op for op in ROW_OPS if op not in STATISTICS_OPS)
ALL_OPS = OPS + STATISTICS_OPS
TRAIN_OPS = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_TRAIN)
PRODUCT_OPS = (*OPS, SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX)
SCALED_OPS = tuple(op for op in OPS if "scale" in EPILOGUES[op].names)
SCALED_OPS += (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX)
NORM_OPS = (BATCH_NORM, SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX, NORM_TRAIN, NORM)
SOFTMAX_OPS = (NORM_SOFTMAX_TRAIN, NORM_SOFTMAX, SOFTMAX)


def name_in_messages(op: str) -> str:
    """The function that users call: the ops of a batch norm in training and in eval share one."""
    return op.removesuffix("_train").removesuffix("_inference")


# What training updates, and its results behind y.
UPDATED = ("running_mean", "running_var", "num_batches_tracked")
RESULTS = {op: ("y",) for op in ALL_OPS} | {
    SCALE_NORM_TRAIN: ("y", "z", "mean", "rstd"),
    NORM_SOFTMAX_TRAIN: ("y", "z", "mean", "rstd"),
    NORM_TRAIN: ("y", "mean", "rstd"),
}

# Argument order of each schema.
_MATRICES = ("x", "weight", "bias", "scale")
_FIXED = ("running_mean", "running_var", "gamma", "beta", "eps")
_BATCH = (*UPDATED, "gamma", "beta", "momentum", "eps")
_OPTIONS = ("precision", "out_dtype")
ARGUMENTS = {
    **{op: ("x", "weight", "bias", *EPILOGUES[op].names, *_OPTIONS) for op in OPS},
    SCALE_NORM_TRAIN: (*_MATRICES, *_BATCH, *_OPTIONS, "keep_z"),
    NORM_SOFTMAX_TRAIN: (*_MATRICES, *_BATCH, *_OPTIONS, "keep_z"),
    NORM_SOFTMAX: (*_MATRICES, *_FIXED, *_OPTIONS),
    NORM_TRAIN: ("x", *_BATCH),
    NORM: ("x", *_FIXED),
    **{
        op: ("x", *row_op.names, *(["out_dtype"] if row_op.out_dtype else []))
        for op, row_op in ROW_OPS.items()
    },
}


# Operands of descriptions that are no field of Call below, by name.
MORE_OPERANDS = {
    operand.name: operand
    for described in (*EPILOGUES.values(), *ROW_OPS.values())
    for operand in described.operands
    if operand.name not in (*_MATRICES, *_FIXED, "multiplier", "negative_slope")
}


def _make_field(operand):
    default = (operand.default or 0.5) if isinstance(operand, Number) else None
    return operand.name, object, dataclasses.field(default=default, kw_only=True)


_MoreOperands = dataclasses.make_dataclass(
    "_MoreOperands", map(_make_field, MORE_OPERANDS.values()), frozen=True, eq=False
)


@dataclasses.dataclass(frozen=True, eq=False)
class Call(_MoreOperands):
    """The arguments of one call of `op`; those that `op` does not take are ignored."""

    op: str
    x: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    multiplier: float = 1.0
    negative_slope: float = 0.01
    running_mean: torch.Tensor | None = None
    running_var: torch.Tensor | None = None
    num_batches_tracked: torch.Tensor | None = None
    gamma: torch.Tensor | None = None
    beta: torch.Tensor | None = None
    momentum: float | None = 0.1
    eps: float = 1e-5
    precision: str = "ieee"
    out_dtype: torch.dtype | None = None
    keep_z: bool = True  # not the default of the ops: so z is judged too

    @property
    def result_dtype(self) -> torch.dtype:
        return self.out_dtype or self.x.dtype

    @property
    def result_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:-1], self.n)

    @property
    def z_shape(self) -> tuple[int, ...]:
        return self.result_shape if self.keep_z else (0, self.n)

    @property
    def m(self) -> int:
        return math.prod(self.x.shape[:-1])

    @property
    def n(self) -> int:
        return self.x.shape[-1] if self.weight is None else self.weight.shape[0]

    @property
    def k(self) -> int:
        return self.x.shape[-1]

    def change(self, **arguments) -> Call:
        return dataclasses.replace(self, **arguments)

    def arguments(self) -> tuple:
        return tuple(getattr(self, name) for name in ARGUMENTS[self.op])

    def overload(self):
        return getattr(torch.ops.cutlass_fused, self.op).default

    def run(self) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The op itself, whatever kernel the device of x has. In training it updates the call."""
        return self.overload()(*self.arguments())

    def refer(self) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The plain PyTorch definition. In training it updates the call."""
        return getattr(reference, self.op)(*self.arguments())

    def run_all(self) -> dict[str, torch.Tensor]:
        """Everything that the op writes, by name; it updates copies, in the same layouts."""
        call = self.copy_updated()
        return call.name_results(call.run())

    def refer_all(self) -> dict[str, torch.Tensor]:
        """The results of the plain PyTorch definition."""
        call = self.copy_updated()
        return call.name_results(call.refer())

    def name_results(self, results) -> dict[str, torch.Tensor]:
        results = (results,) if isinstance(results, torch.Tensor) else results
        return dict(zip(RESULTS[self.op], results, strict=True)) | self.updated()

    def updated(self) -> dict[str, torch.Tensor]:
        """The tensors that this call updates, by name."""
        if self.op not in TRAIN_OPS:
            return {}
        return {name: t for name, t in self.tensors().items() if name in UPDATED}

    def copy_updated(self) -> Call:
        return self.change(**{name: copy_memory(t) for name, t in self.updated().items()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that the op takes in this call, by name."""
        arguments = zip(ARGUMENTS[self.op], self.arguments(), strict=True)
        return {name: value for name, value in arguments if isinstance(value, torch.Tensor)}

    def map_tensors(self, function) -> Call:
        return self.change(**{name: function(value) for name, value in self.tensors().items()})

    def map_numbers(self, function) -> Call:
        """`map_tensors` for all but the count, which is an integer."""
        return self.map_tensors(lambda t: function(t) if t.is_floating_point() else t)

    def in_float64(self) -> Call:
        """The call of the same numbers, computed and returned in float64."""
        return self.map_numbers(torch.Tensor.double).change(out_dtype=None)

    def flatten(self) -> Call:
        """x as a matrix of m rows."""
        return self.change(x=self.x.reshape(self.m, self.k))

    def take_rows(self, rows) -> Call:
        """The call on these rows of the flattened x; None takes all."""
        flat = self.flatten()
        return flat if rows is None else flat.change(x=flat.x[rows])


def copy_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, offset and surroundings."""
    elements = tensor.untyped_storage().nbytes() // tensor.itemsize
    memory = torch.as_strided(tensor, (elements,), (1,), 0).clone()
    return torch.as_strided(memory, tensor.shape, tensor.stride(), tensor.storage_offset())
