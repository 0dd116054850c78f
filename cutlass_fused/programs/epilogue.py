"""An epilogue that a user writes, and the product in front of it."""

import functools
import pickle
from collections.abc import Callable

import torch
from torch import Tensor

from .._library import ops
from ..checks import check_matrices, check_options, refuse_kind
from ..functional import linear
from ..functional._arguments import (
    NUMBERS,
    check_tensors,
    differentiates,
    no_autocast,
    take_matrices,
    varies,
)
from ..functional._derivatives import is_forward_mode, may_differentiate_in_graph
from ..functional._other_layouts import STRIDED
from ..precision import Precision
from ..reference import compute_dtype
from ..sharding import is_sharded
from ..weights.splits import find_split
from . import native
from .common import MADE, make_epilogue
from .differentiated import differentiate_call
from .operands import check_operand, find_kind, take_operand
from .parse import parse
from .recorded import read_recorded
from .seen import Seen, SeenCalls, describe
from .traced import Key, TracedFunction, find_recorded, find_text

_linear_epilogue_op = ops.linear_epilogue.default
# Of a call, and so of no operand.
_OPTIONS = ("precision", "out_dtype", "weight_split")
# What rms_norm adds where it is given no eps, as a program of fp32 has it. In float64 it is less.
_EPS = torch.finfo(torch.float32).eps.hex()


class Epilogue:
    """y = function(x @ weight.T, **operands), of elements or rows: see `epilogue`."""

    def __init__(self, function: Callable[..., Tensor], asynchronous: bool = False) -> None:
        if isinstance(function, Epilogue):
            function = function.__wrapped__
        self.asynchronous = asynchronous
        self.name = getattr(function, "__name__", type(function).__name__)
        self.traced = TracedFunction(self.name, function)
        for name in self.traced.operands:
            if name in _OPTIONS:
                taken = ", ".join(_OPTIONS)
                raise TypeError(f"{self.name}: no operand may be named {taken}, got {name}")
        self.seen = SeenCalls()
        functools.update_wrapper(self, function, updated=())

    def __reduce__(self) -> str:
        """By its name in its module, so that what is unpickled is the other process's own."""
        name = getattr(self, "__qualname__", None)  # which partials and modules have none of
        if name is None:
            must = "to be pickled it must be made of a function of a module"
            found = type(self.traced.function).__name__
            raise pickle.PicklingError(f"{self.name}: {must}, got one of {found}")
        return name

    def __copy__(self) -> "Epilogue":
        """Itself: nothing of it changes."""
        return self

    def __deepcopy__(self, memo: dict) -> "Epilogue":
        return self

    def __repr__(self) -> str:
        return f"<epilogue {self.name}({', '.join(['acc', *self.traced.operands])})>"

    def __call__(
        self,
        x: Tensor,
        weight: Tensor,
        /,
        *,
        precision: Precision | None = None,
        out_dtype: torch.dtype | None = None,
        weight_split: Tensor | None = None,
        **operands: Tensor | float | None,
    ):
        """y = function(x @ weight.T, **operands)

        Args:
            x: (..., K); float16, bfloat16 or float32 (on the CPU float64 too).
            weight: (N, K), dtype of x, or float32 beside 16 bits.
            precision: "ieee" or "tf32", for an fp32 weight; None follows PyTorch's setting.
            out_dtype: dtype of x or float32; None is what PyTorch makes of x and the operands, of
                which those of no dimension count as numbers.
            weight_split: as for functional.linear.
            operands: by the names that the function gives them. A tensor of any floating dtype, on
                the device of x: () or (1,), one value for all; (N,), one for each column; (..., 1),
                one for each row of x; (..., N), one for each element. Where M = N, (N,) counts
                columns. A mask is one of floats. A number is part of the program: one that changes
                should be a tensor of no dimension. None, and what is left to its default, reaches
                the function as it is.

        Returns:
            (..., N) of out_dtype; a tuple where the function returns one. A result of groups of
            columns is (..., N / width), one of (M,) is (...,).

        Numerics: product and function in fp32 (float64 for float64 inputs), rounded once. Each
        gradient has the dtype of its input; the backward pass uses the same precision.

        Raises:
            TypeError: x or weight is not a tensor, or an operand is missing, unknown, or none of a
                tensor, a number and None.
            RuntimeError: shapes, dtypes or devices do not fit, or the function is none of elements:
                it moves them, adds rows, draws random numbers, reads a number of a tensor or a
                tensor from around it. The message has its line.
        """
        op = self.name
        check_tensors(op, x, weight, None)
        if x.layout is not STRIDED or x.is_nested:
            refuse_kind(op, "x", x)
        x, weight, _, precision = take_matrices(op, x, weight, None, precision)
        if is_sharded(x, weight, *operands.values()):
            return self._run_on_shards(x, weight, precision, out_dtype, operands)
        call = describe(x, weight, precision, out_dtype, operands)
        seen = None if call is None else self.seen.find(call)
        if seen is None:
            check_matrices(op, x, weight, may_mix=True)
            check_options(op, x, precision, out_dtype)
            wide, given = compute_dtype(x), operands
            operands = {name: self._take(name, each, x, wide) for name, each in given.items()}
            key = self._find_key(operands, x, weight.shape[0])
            n, constants = weight.shape[0], _name_constants(key)
            # Where it varies from call to call, a program of any number, if there is one.
            n = None if torch.compiler.is_dynamo_compiling() and varies(n) else n
            found = find_text(self.traced.token, constants, n)
            text, is_tuple, are_rows = ("", False, ()) if found is None else found
            names = tuple(name for name, found in key if isinstance(found, tuple))
            tensors = [operands[name] for name in names]
            dtype, recorded = out_dtype or _promote(x, tensors), None
            must_compose = found is None or _must_compose(key, x, weight, *tensors)
            must_compose |= wide == torch.float64 and _EPS in text
            if not must_compose and differentiates(x, weight, *tensors):
                # A graph that is to be differentiated again within itself.
                is_inside = torch.compiler.is_compiling() and may_differentiate_in_graph()
                of = (key, n, x, weight, tensors, _name(dtype), _name(wide))
                recorded = None if is_inside else self._record(*of)
                must_compose = recorded is None
            if must_compose:
                return self._compose(x, weight, key, operands, precision, dtype)
            converted = tuple(name for name in names if operands[name] is not given[name])
            are_rows = are_rows if True in are_rows else ()
            seen = Seen(text, _name(dtype), is_tuple, names, converted, recorded, are_rows)
            if call is not None:
                if recorded is not None:
                    kinds = tuple(found for _, found in key if isinstance(found, tuple))
                    seen = seen._replace(native=native.write_call(x, weight, recorded, kinds))
                self.seen.keep(call, seen)
        elif seen.converted:
            wide = compute_dtype(x)
            converted = {name: _convert(operands[name], x, wide) for name in seen.converted}
            operands = operands | converted
        tensors = [operands[name] for name in seen.tensors]
        if seen.native is not None and native.takes():
            given = (x, weight, tensors, seen.native, precision, self.asynchronous)
            results = [native.run(*given)]
            if seen.recorded.is_first_order:
                native.hold(results[0], self.traced)
        elif seen.recorded is not None:
            recorded = seen.recorded
            if self.asynchronous:
                recorded = recorded._replace(asynchronous=not torch.compiler.is_exporting())
            results = differentiate_call(x, weight, precision, recorded, tensors)
        else:
            split = find_split(weight, precision, weight_split)
            given = (x, weight, tensors, seen.text, precision, seen.out, split)
            # What is exported may run where there is no Python to stand in for a kernel.
            if self.asynchronous and not torch.compiler.is_exporting():
                given = (*given, True)
            results = _linear_epilogue_op(*given)
        if seen.are_rows:
            pairs = zip(results, seen.are_rows, strict=True)
            results = [each.squeeze(-1) if is_row else each for each, is_row in pairs]
        return tuple(results) if seen.is_tuple else results[0]

    def _record(self, key: Key, n, x: Tensor, weight: Tensor, tensors, out: str, wide: str):
        """What a call with gradients runs; None where only PyTorch's ops have them."""
        needed = (
            x.requires_grad or weight.requires_grad,
            *(each.requires_grad for each in tensors),
        )
        of_acc = _name(x.dtype) if x.dtype == weight.dtype else wide
        inputs = (of_acc, *(_name(tensor.dtype) for tensor in tensors))
        found = find_recorded(self.traced.token, key, n, needed, out, wide, inputs)
        return None if found is None else read_recorded(found)

    def _compose(self, x: Tensor, weight: Tensor, key: Key, operands, precision: str, dtype):
        """The function itself behind the product: PyTorch's ops have all derivatives."""
        with no_autocast(x):
            z = linear(x, weight, precision=precision, out_dtype=compute_dtype(x))
            return self._run_behind(z, key, operands, dtype)

    def _run_behind(self, z: Tensor, key: Key, operands, dtype: torch.dtype):
        """The function itself, of the product."""
        acc = z.reshape(-1, z.shape[-1]) if z.dim() != 2 else z
        taken = {
            name: take_operand(operands[name], found[0], acc)
            if isinstance(found, tuple)
            else operands[name]
            for name, found in key
        }
        y = self.traced.function(acc, **taken)
        is_tuple = isinstance(y, (tuple, list))
        results = [
            each.reshape((*z.shape[:-1], *each.shape[1:])).to(dtype)
            for each in (y if is_tuple else (y,))
        ]
        return tuple(results) if is_tuple else results[0]

    @torch._dynamo.disable
    def _run_on_shards(self, x: Tensor, weight: Tensor, precision: str, out_dtype, operands: dict):
        """With DTensors, in eager mode: each process calls this epilogue with what it has."""
        from ..sharding._all_reduce import all_reduce_forward
        from ..sharding._programs import apply_epilogue

        check_matrices(self.name, x, weight, may_mix=True)
        check_options(self.name, x, precision, out_dtype)
        wide, n = compute_dtype(x), weight.shape[0]
        operands = {name: self._take(name, each, x, wide) for name, each in operands.items()}
        key = self._find_key(operands, x, n)
        adds_rows = parse(find_text(self.traced.token, key, n)[0]).columns != 0
        tensors = {name: each for name, each in operands.items() if isinstance(each, Tensor)}
        dtype = out_dtype or _promote(x, list(tensors.values()))

        def run(x: Tensor, weight: Tensor, shards: dict[str, Tensor], groups: tuple):
            taken = operands | shards
            if not groups:
                return self(x, weight, precision=precision, out_dtype=out_dtype, **taken)
            with no_autocast(x):
                z = linear(x, weight, precision=precision, out_dtype=wide)
                for group in groups:
                    z = all_reduce_forward(z, group)
                return self._run_behind(z, key, taken, dtype)

        return apply_epilogue(self.name, x, weight, tensors, adds_rows, run)

    def _take(self, name: str, operand, x: Tensor, wide: torch.dtype):
        """A tensor as ops take it: of no dimension it may lie on the CPU, and be wider."""
        if not isinstance(operand, Tensor):
            return operand
        check_operand(self.name, name, operand, x, may_be_on_host=True)
        return _convert(operand, x, wide)

    def _find_key(self, operands: dict, x: Tensor, n: int) -> Key:
        known = self.traced.operands
        for name in operands:
            if name not in known:
                names = ", ".join(known) or "none"
                raise TypeError(f"{self.name}: operands must be of {names}, got {name}")
        for name, is_required in known.items():
            if is_required and name not in operands:
                raise TypeError(f"{self.name}: {name} must be given, got no such operand")
        given = [name for name in known if name in operands]
        return tuple((name, self._find_part(name, operands[name], x, n)) for name in given)

    def _find_part(self, name: str, operand, x: Tensor, n: int) -> tuple[str, int] | float | None:
        if isinstance(operand, Tensor):
            return find_kind(self.name, name, operand, x, n), min(operand.dim(), 2)
        if operand is None or isinstance(operand, NUMBERS):
            return operand
        found = type(operand).__name__
        raise TypeError(f"{self.name}: {name} must be a tensor, a number or None, got {found}")


def epilogue(function: Callable[..., Tensor] | None = None, /, *, asynchronous: bool = False):
    """A function of the elements of a product, to be computed with it: an Epilogue.

        @epilogue
        def gated(acc, bias, gate):
            return torch.nn.functional.gelu(acc + bias) * gate

        y = gated(x, weight, bias=b, gate=g)

    acc is x @ weight.T as (M, N) in fp32, and operands come by keyword: Epilogue.__call__ tells
    which there are. The function is traced once for each kind of operands: it must compute each
    element of its results of acc and operands at the same place, with ops of PyTorch. It may add
    and compare along rows, as softmax, norms and windows of columns do, and is then traced once for
    each N. It may return several tensors, of (M, N), (M, N / width), (M, 1) or (M,). What it reads
    of Python, such as a global number, is read when it is traced.

    asynchronous: `@epilogue(asynchronous=True)` lets no call wait for a kernel that is not linked
        yet. Another thread links it, and until it has, the product runs alone and PyTorch's ops
        behind it, or another kernel that is linked. Results may then change by rounding from one
        call to the next. While a CUDA graph is captured a link that has begun is waited for, and
        none begins. An exported program links when it runs.

    Raises TypeError for a class, and for a function whose first argument is not acc, or whose
    operands have no names or those of options. What else a function must be is seen when it is
    called.
    """
    if not isinstance(asynchronous, bool):
        raise TypeError(f"epilogue: asynchronous must be a bool, got {asynchronous!r}")
    if function is None:
        return functools.partial(Epilogue, asynchronous=asynchronous)
    return Epilogue(function, asynchronous)


@torch._dynamo.disable(reason="to be compiled it must be made by cutlass_fused.epilogue")
def call_uncompiled(given: Callable, x: Tensor, weight: Tensor, options: dict):
    """What linear_epilogue makes of an object, which TorchDynamo takes for no constant: between two
    graphs."""
    return getattr(MADE, make_epilogue(given))(x, weight, **options)


def _convert(operand: Tensor, x: Tensor, wide: torch.dtype) -> Tensor:
    if operand.device != x.device:
        # The host waits for no kernel, and the numbers of pinned memory are not overtaken.
        return operand.to(x.device, wide, non_blocking=not operand.is_pinned())
    return operand.to(wide) if operand.dtype.itemsize > wide.itemsize else operand


def _promote(x: Tensor, tensors: list[Tensor]) -> torch.dtype:
    dtype = x.dtype
    for tensor in tensors:
        if tensor.dim() > 0:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _must_compose(key: Key, *tensors: Tensor) -> bool:
    """Where the ops have no derivative of that kind."""
    if is_forward_mode():
        return True
    if torch.compiler.is_dynamo_compiling():
        # A program has a number as a constant, and there would be one for each value.
        return any(_varies(found) for _, found in key)
    return torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()


def _name_constants(key: Key) -> Key:
    """With 1 for numbers that vary, of which find_text is to see that they can be traced."""
    if not torch.compiler.is_dynamo_compiling():
        return key
    return tuple((name, 1.0 if _varies(found) else found) for name, found in key)


def _varies(found) -> bool:
    return isinstance(found, NUMBERS) and varies(found)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
