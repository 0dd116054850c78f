"""What the description of an epilogue is made of, and what it shares with that of an op along rows
(cutlass_fused.row_ops). Each file of this folder holds one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ..checks import name_in_messages


@dataclass(frozen=True)
class Row:
    """One value per column: (N,), of the dtype of x or float32. None, unless the operand is
    required, stands for `absent` everywhere."""

    name: str
    required: bool = False
    absent: float = 0.0


@dataclass(frozen=True)
class RowOrScalar:
    """A Row, or one element of shape () or (1,); None is 1. The result gets the dtype that
    PyTorch would give z times this."""

    name: str
    required: bool = False


@dataclass(frozen=True)
class Number:
    """A number of Python's, which a kernel gets in fp32. Without a default it is required."""

    name: str
    default: float | None = None

    @property
    def required(self) -> bool:
        return self.default is None


Operand = Row | RowOrScalar | Number
BIAS = Row("bias")


@dataclass(frozen=True)
class Functor:
    """The struct of the CUDA kernels, its header in include/cutlass_fused/epilogue, and the C++
    initializer of its Args, in which operands stand by their names, as in
    "{bias, {scale, multiplier}, negative_slope}"; without it the bias and all operands in order."""

    struct: str
    header: str
    arguments: str | None = None


@dataclass(frozen=True)
class Gradient:
    """Partial derivatives times grad_y, element by element: z(grad_y, z, *operands) is the gradient
    of z; operands[name], of the same arguments, are the terms whose sum is that of an operand.

    They are written in ops that PyTorch differentiates, since gradients are differentiated again.
    Where `reads_z` is False z is not kept for the backward pass, and the functions are called
    without it.
    """

    z: Callable[..., Tensor]
    operands: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    reads_z: bool = True


@dataclass(frozen=True, eq=False)
class Description:
    """What every op has that is described.

    op: the name in torch.ops.cutlass_fused.
    text: the formula for docstrings.
    formula: the same in PyTorch.
    operands: in the order of the op's arguments.
    """

    op: str
    text: str
    formula: Callable[..., Tensor]
    operands: tuple[Operand, ...]

    matrices = ("x",)  # arguments in front of the operands
    options = ()  # those behind them, as the schema has them

    @property
    def function(self) -> str:
        """What users call, and what messages begin with."""
        return name_in_messages(self.op)

    @property
    def names(self) -> list[str]:
        return [operand.name for operand in self.operands]

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        """With those that need no description."""
        return self.operands

    @property
    def vectors(self) -> list[Row | RowOrScalar]:
        """The operands that are tensors, without the bias."""
        return [operand for operand in self.operands if not isinstance(operand, Number)]


@dataclass(frozen=True, eq=False)
class Epilogue(Description):
    """y = formula(z, *operands) with z = x @ weight.T + bias.

    text: in it z is that product.
    formula: in the dtype of z.
    operands: behind the bias.
    gradient: None leaves it to PyTorch's autograd: the formula then runs behind the product.
    cuts: the dimensions along which DTensors may be sharded (cutlass_fused.sharding).
    notes: more sentences for docstrings.
    is_bare: without a bias y is the product itself.
    """

    functor: Functor
    gradient: Gradient | None = None
    cuts: tuple[str, ...] = ("rows", "columns")
    notes: str = ""
    is_bare: bool = False

    matrices = ("x", "weight")
    options = (
        'str precision="ieee"',
        "ScalarType? out_dtype=None",
        "Tensor? weight_split=None",
        "str? out=None",
    )

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        """With the bias."""
        return (BIAS, *self.operands)


def list_with_defaults(description: Description) -> list[tuple[Operand, bool]]:
    """All operands, each with whether it has a default: none that is required stands behind it."""
    operands = description.all_operands
    last = max((i for i, operand in enumerate(operands) if operand.required), default=-1)
    return [(operand, i > last) for i, operand in enumerate(operands)]
