"""What the description of an op along rows is made of. Each file of this folder holds one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

# The kinds of operands, for the files of this folder.
from ..epilogues._description import Description, Number, Row

__all__ = ["Bound", "Gradient", "Launch", "Number", "Row", "RowOp"]


@dataclass(frozen=True)
class Launch:
    """The C++ function that the op calls, and the kernels behind it.

    function: called as function<type>(x, arguments, device, stream).
    header: that declares it, in include/cutlass_fused.
    arguments: in C++, with operands by their names and y_type for the type of y. Without it y,
        y_type if the op takes out_dtype, and all operands in order.
    row: of STANDALONE in src/kernels/table.py; None is the name of the op.
    kernels: the names of the kernels that the row compiles, which tests look for in the library;
        None is the name of the row.
    """

    function: str
    header: str
    arguments: str | None = None
    row: str | None = None
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Gradient:
    """x(grad_y, x, *operands) is the gradient of x; operands[name], of the same arguments, are the
    terms whose sum over the rows is that of an operand. They are written in ops that PyTorch
    differentiates, since gradients are differentiated again.

    reads: "x", or "y" where the functions get the result in place of x.
    in_fp32: whether they get 16-bit matrices in fp32. Where they do not, they compute in fp32
        themselves.
    """

    x: Callable[..., Tensor]
    operands: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    reads: str = "x"
    in_fp32: bool = True


@dataclass(frozen=True)
class Bound:
    """What fp32 arithmetic may lose of y in front of the one rounding, element by element: the
    error of that many roundings of `size`.

    roundings: beside those of a sum over the row.
    threads: that share this sum. Each adds its part one by one.
    size: of (x, *operands) in float64, what the error is relative to; None is |y|. Where y is the
        difference of larger numbers it is that of the larger ones.
    """

    roundings: int = 16
    threads: int = 256
    size: Callable[..., Tensor] | None = None


@dataclass(frozen=True, eq=False)
class RowOp(Description):
    """y = formula(x, *operands), of the shape of x: each row of x by itself.

    formula: over the last dimension, of x in float32 (float64 for float64 inputs).
    launch: what the op calls.
    gradient: None leaves it to PyTorch's autograd: where a gradient is asked for, the formula runs,
        as it does in forward mode.
    out_dtype: whether the op takes the dtype of the result.
    plain: what users write in PyTorch, for tests, whose yardstick is its error; called with `dtype`
        where the op takes out_dtype. None is the formula in float32.
    bound: for tests; not of a softmax, which they judge by rules of its own.
    cuts: the dimensions along which DTensors may be sharded (cutlass_fused.sharding).
    notes: more sentences for docstrings.
    """

    launch: Launch
    gradient: Gradient | None = None
    out_dtype: bool = False
    plain: Callable[..., Tensor] | None = None
    bound: Bound = Bound()
    cuts: tuple[str, ...] = ("rows",)
    notes: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        return ("ScalarType? out_dtype=None", "str? out=None") if self.out_dtype else ()

    @property
    def row(self) -> str:
        return self.launch.row or self.op

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.launch.kernels or (self.row,)
