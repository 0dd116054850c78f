"""An epilogue that a user writes, and the product in front of it."""

import functools
import inspect
import itertools
import numbers
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import check_matrices, check_options, refuse_kind
from ..functional import linear
from ..functional._arguments import (
    NUMBERS,
    check_tensors,
    no_autocast,
    take_matrices,
    varies,
)
from ..functional._other_layouts import STRIDED
from ..reference import compute_dtype
from .gradient import Gradient, trace_gradient
from .operands import (
    TRACED_SIZES,
    check_operand,
    find_kind,
    find_traced_shape,
    take_operand,
)
from .program import Acc, Argument, Operand, Program
from .trace import Refusal, trace

# Of a call, and so of no operand.
_OPTIONS = ("precision", "out_dtype", "weight_split")
# An operand as a program depends on it: its kind and its dimensions, or a number, or None.
Key = tuple[tuple[str, tuple[str, int] | float | None], ...]

_COUNT = itertools.count()
_BY_TOKEN: weakref.WeakValueDictionary[str, "Epilogue"] = weakref.WeakValueDictionary()


class Epilogue:
    """y = function(x @ weight.T, **operands), element by element: see `epilogue`."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._operands = _read_operands(self.name, function)
        self._programs: dict[Key, Program] = {}
        self._gradients: dict[tuple[Key, tuple[bool, ...]], Gradient] = {}
        # TorchDynamo hands over constants alone, and takes a number that varies for none.
        self._token = str(next(_COUNT))
        _BY_TOKEN[self._token] = self
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<epilogue {self.name}({', '.join(['acc', *self._operands])})>"

    def __call__(
        self,
        x: Tensor,
        weight: Tensor,
        /,
        *,
        precision: str | None = None,
        out_dtype: torch.dtype | None = None,
        weight_split: Tensor | None = None,
        **operands: Tensor | float | None,
    ):
        """y = function(x @ weight.T, **operands)

        Args:
            x: (..., K); float16, bfloat16 or float32 (on the CPU float64 too).
            weight: (N, K), dtype of x, or float32 beside 16 bits.
            precision: "ieee" or "tf32", for an fp32 weight; None follows PyTorch's setting.
            out_dtype: dtype of x or float32; None is the dtype of x.
            weight_split: as for functional.linear.
            operands: by the names that the function gives them. A tensor of any floating dtype, on
                the device of x: () or (1,), one value for all; (N,), one for each column; (..., 1),
                one for each row of x; (..., N), one for each element. Where M = N, (N,) counts
                columns. A number is part of the program: one that changes should be a tensor of
                no dimension. None, and what is left to its default, reaches the function as it is.

        Returns:
            (..., N) of out_dtype; a tuple where the function returns one.

        Numerics: product and function in fp32 (float64 for float64 inputs), rounded once.

        Raises:
            TypeError: x or weight is not a tensor, or an operand is missing, unknown, or none of a
                tensor, a number and None.
            RuntimeError: shapes, dtypes or devices do not fit, or the function is none of elements:
                it moves or adds them, draws random numbers, reads a number of a tensor or a tensor
                from around it. The message has its line.
        """
        op = self.name
        check_tensors(op, x, weight, None)
        if x.layout is not STRIDED:
            refuse_kind(op, "x", x)
        x, weight, _, precision = take_matrices(op, x, weight, None, precision)
        check_matrices(op, x, weight, may_mix=True)
        check_options(op, x, precision, out_dtype)
        key = self._find_key(operands, x, weight.shape[0])
        _check_traced(self._token, _name_constants(key))
        wide = compute_dtype(x)
        with no_autocast(x):
            z = linear(x, weight, precision=precision, out_dtype=wide, weight_split=weight_split)
            acc = z.reshape(-1, z.shape[-1]) if z.dim() != 2 else z
            taken = {
                name: take_operand(operands[name], found[0], acc)
                if isinstance(found, tuple)
                else found
                for name, found in key
            }
            y = self.function(acc, **taken)
            dtype, shape = out_dtype or x.dtype, z.shape
            if isinstance(y, Tensor):
                return y.reshape(shape).to(dtype)
            return tuple(each.reshape(shape).to(dtype) for each in y)

    def find_program(self, key: Key) -> Program:
        """For operands of these kinds. Raises Refusal."""
        if key not in self._programs:
            first, second = (self._trace(key, sizes) for sizes in TRACED_SIZES)
            if first.text != second.text:  # NaN is no other number than itself
                must = "it must compute the same for all sizes and in every call"
                raise Refusal(f"{self.name}: {must}, got others for {TRACED_SIZES[1]}")
            self._programs[key] = first
        return self._programs[key]

    def find_gradient(self, key: Key, needed: tuple[bool, ...]) -> Gradient:
        """The gradient's, of acc and the operands that are tensors. Raises Refusal."""
        self.find_program(key)
        if (key, needed) not in self._gradients:
            function, shapes = self._bind(key, TRACED_SIZES[0])
            self._gradients[key, needed] = trace_gradient(self.name, function, shapes, needed)
        return self._gradients[key, needed]

    def _trace(self, key: Key, sizes: tuple[int, int]) -> Program:
        function, shapes = self._bind(key, sizes)
        inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
        return trace(self.name, function, shapes, inputs)

    def _bind(self, key: Key, sizes: tuple[int, int]):
        """The function of acc and the tensors among the operands, and the shapes of those."""
        names = [name for name, found in key if isinstance(found, tuple)]
        others = {name: found for name, found in key if not isinstance(found, tuple)}
        shapes = [find_traced_shape(*found, sizes) for _, found in key if isinstance(found, tuple)]

        def function(acc, *tensors):
            return self.function(acc, **dict(zip(names, tensors, strict=True)), **others)

        return function, [sizes, *shapes]

    def _find_key(self, operands: dict, x: Tensor, n: int) -> Key:
        for name in operands:
            if name not in self._operands:
                known = ", ".join(self._operands) or "none"
                raise TypeError(f"{self.name}: operands must be of {known}, got {name}")
        for name, is_required in self._operands.items():
            if is_required and name not in operands:
                raise TypeError(f"{self.name}: {name} must be given, got no such operand")
        return tuple(
            (name, self._find_part(name, operands[name], x, n))
            for name in self._operands
            if name in operands
        )

    def _find_part(self, name: str, operand, x: Tensor, n: int) -> tuple[str, int] | float | None:
        if isinstance(operand, Tensor):
            check_operand(self.name, name, operand, x)
            return find_kind(self.name, name, operand, x, n), min(operand.dim(), 2)
        if operand is None or isinstance(operand, numbers.Real):
            return operand
        found = type(operand).__name__
        raise TypeError(f"{self.name}: {name} must be a tensor, a number or None, got {found}")


def _name_constants(key: Key) -> Key:
    """With 1 for numbers that vary where TorchDynamo traces: it would trace for each value."""
    if not torch.compiler.is_dynamo_compiling():
        return key
    return tuple(
        (name, 1.0 if isinstance(found, NUMBERS) and varies(found) else found)
        for name, found in key
    )


@torch._dynamo.assume_constant_result
def _check_traced(token: str, key: Key) -> bool:
    """Whether it can be traced, else a Refusal: also where TorchDynamo traces the call."""
    _BY_TOKEN[token].find_program(key)
    return True


def epilogue(function: Callable[..., Tensor]) -> Epilogue:
    """A function of the elements of a product, to be computed with it.

        @epilogue
        def gated(acc, bias, gate):
            return torch.nn.functional.gelu(acc + bias) * gate

        y = gated(x, weight, bias=b, gate=g)

    acc is x @ weight.T as (M, N) in fp32, and operands come by keyword: Epilogue.__call__ tells
    which there are. The function is traced once for each kind of operands: it must compute each
    element of its results of acc and operands at the same place, with ops of PyTorch. It may return
    several tensors of (M, N).
    """
    return Epilogue(function)


def _read_operands(name: str, function: Callable) -> dict[str, bool]:
    """The names of the operands, and whether each must be given."""
    first, *others = inspect.signature(function).parameters.values() or (None,)
    kinds = inspect.Parameter
    if first is None or first.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"{name}: the first argument must be acc, got none")
    for each in others:
        if each.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
            raise TypeError(f"{name}: operands must have names, got {each}")
        if each.name in _OPTIONS:
            taken = ", ".join(_OPTIONS)
            raise TypeError(f"{name}: no operand may be named {taken}, got {each.name}")
    return {each.name: each.default is kinds.empty for each in others}
