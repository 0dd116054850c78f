"""From a function in Python to its program.

The function runs once, with tensors of the meta device, which have shapes and no numbers, and each
op that PyTorch dispatches is written down in words.
"""

import contextlib
import numbers
import sys
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.overrides import _pop_mode, _push_mode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..operands import TRACED_ROWS
from ..program import Acc, Argument, Program, check_size
from .builder import Builder, Known
from .constants import (
    CONSTANTS,
    WRITTEN_CONSTANTS,
    OnCPU,
    compute_constants,
    make_constant,
    makes_many_elsewhere,
    read_constant,
)
from .row_rules import ROW_RULES
from .rules import RULES

_aten = torch.ops.aten
_OURS = __name__.removesuffix(".programs.tracing.trace")
# Ops whose result has the elements of their first argument, if not its shape.
_VIEWS = frozenset(
    (
        *(_aten.alias.default, _aten.detach.default, _aten.expand.default, _aten.view.default),
        *(_aten.unsqueeze.default, _aten.squeeze.default, _aten.squeeze.dim, _aten.clone.default),
        *(_aten.lift_fresh.default, _aten.reshape.default, _aten._unsafe_view.default),
    )
)
_CONVERSIONS = frozenset((_aten._to_copy.default, _aten.to.dtype_layout, _aten.to.dtype))
_READS = {
    _aten._local_scalar_dense.default: "reads a number of a tensor, as control flow would",
    _aten.is_nonzero.default: "reads a number of a tensor, as control flow would",
}


class Refusal(RuntimeError):
    """The function is none that a program can be made of. The message has the line of it.

    may_be_of_rows: it may be one of rows of a known length: tracing/rows.py.
    """

    may_be_of_rows = False


class Tracer(TorchDispatchMode):
    """Writes down what is dispatched. `stand_for` says what its tensors stand for: an argument of
    the program, or a constant, which is a tensor itself."""

    rules = RULES
    columns = 0  # of programs of rows

    def __init__(self, name: str) -> None:
        super().__init__()
        self.builder = Builder()
        self._name = name
        # With the tensor, so that no other gets its id.
        self._known: dict[int, tuple[Tensor, Known | Tensor]] = {}
        self._operands: set[int] = set()
        self._made: Tensor | None = None  # a constant, by the op before

    def stand_for(self, tensor: Tensor, meaning: Known | Tensor) -> None:
        self._known[id(tensor)] = tensor, meaning

    def take_input(self, tensor: Tensor, argument: Argument) -> None:
        """acc may be written to, operands may not."""
        self.stand_for(tensor, argument)
        if not isinstance(argument, Acc):
            self._operands.add(id(tensor))

    def find(self, tensor: Tensor) -> Known:
        meaning = self._find_meaning(tensor)
        return read_constant(meaning) if isinstance(meaning, Tensor) else meaning

    def refuse(self, why: str, may_be_of_rows: bool = False) -> NoReturn:
        refusal = Refusal(f"{self._name}: {_find_line()} {why}")
        refusal.may_be_of_rows = may_be_of_rows
        raise refusal

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made, self._made = self._made, None
        if op in CONSTANTS:
            if makes_many_elsewhere(args, kwargs):
                # A trace has more rows than a machine has room for.
                self.refuse(
                    f"makes a tensor of more than one number off acc's device ({name_of(op)})"
                )
            self._made = result = op(*args, **kwargs)
            self._name_constant(CONSTANTS[op](*args, **kwargs), result)
        elif self.hands_over(op, args, made):
            result = op(*args, **kwargs)
            self.stand_for(result, self._known.pop(id(made))[1])
        elif op in WRITTEN_CONSTANTS:
            self.check_written(op, args[0])
            result = op(*args, **kwargs)
            self._name_constant(WRITTEN_CONSTANTS[op](*args, **kwargs), result)
        elif op in _CONVERSIONS:
            result = op(*args, **kwargs)
            meaning = self._find_meaning(args[0])
            if isinstance(meaning, Tensor):
                self.stand_for(result, make_constant(meaning.to(result.dtype), result.dtype))
            else:
                self.stand_for(result, self._convert(meaning, result))
        elif op in _VIEWS:
            result = op(*args, **kwargs)
            self._name_view(op, args[0], result)
        else:
            result = self._run(op, args, kwargs)
        return result

    @staticmethod
    def hands_over(op, args, made: Tensor | None) -> bool:
        """Whether PyTorch detaches what it has just made, which nobody else has."""
        return op is _aten.detach.default and made is not None and args[0] is made

    def _find_meaning(self, tensor: Tensor) -> Known | Tensor:
        if id(tensor) not in self._known:
            self.refuse("reads a tensor from around the function, which must be an operand of it")
        return self._known[id(tensor)][1]

    def _run(self, op, args, kwargs):
        """An op that computes."""
        rule = self.rules.get(op)
        if rule is None:
            rule = _find_out_of_place(op)
            if rule is None:
                why = _READS.get(op) or f"calls {name_of(op)}, which no word of programs is"
                self.refuse(why, op in ROW_RULES)
            self.check_written(op, args[0])
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        meanings = [self._find_meaning(each) for each in tensors]
        if meanings and all(isinstance(each, Tensor) for each in meanings):
            return self._run_constants(op, args, kwargs)
        arguments = [self._take(each) for each in args]
        named = {name: self._take(value) for name, value in kwargs.items()}
        result = op(*args, **kwargs)
        self._name_results(rule(self.builder, *arguments, **named), result)
        return result

    def _run_constants(self, op, args, kwargs):
        def find(value):
            return self._find_meaning(value) if isinstance(value, Tensor) else value

        constants = [find(each) for each in args]
        named = {name: find(value) for name, value in kwargs.items()}
        if op._schema.is_mutable:  # of a constant no other tensor is to change
            constants[0] = constants[0].clone()
        result = op(*args, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for tensor, each in zip(
            results, compute_constants(op, constants, named, results), strict=True
        ):
            self.stand_for(tensor, each)
        return result

    def _name_constant(self, value, result: Tensor) -> None:
        self.stand_for(result, make_constant(value, result.dtype))

    def _name_view(self, op, tensor: Tensor, result: Tensor) -> None:
        if op is _aten.lift_fresh.default:  # torch.tensor(2.0) within the function
            if tensor.numel() != 1 or tensor.is_meta:
                self.refuse("makes a tensor of more than one number, which must be an operand")
            with torch._C._DisableTorchDispatch():
                self._name_constant(tensor.reshape(()), result)
            return
        is_expanded = op is _aten.expand.default
        if not is_expanded and _strip(tensor.shape) != _strip(result.shape):
            self.refuse_move(op, tensor, result)
        self.stand_for(result, self._find_meaning(tensor))

    def refuse_move(self, op, tensor: Tensor, result: Tensor) -> NoReturn:
        shapes = f"{name_shape(tensor)} into {name_shape(result)}"
        self.refuse(f"moves elements to other places ({name_of(op)}, {shapes})", True)

    def _name_results(self, argument, result) -> None:
        results = result if isinstance(result, (tuple, list)) else (result,)
        arguments = argument if isinstance(argument, tuple) else (argument,)
        for tensor, each in zip(results, arguments, strict=True):
            if each is None:
                self.refuse("computes with integers")
            self.stand_for(tensor, self._convert(each, tensor))

    def check_written(self, op, written: Tensor) -> None:
        place = written.untyped_storage()._cdata
        others = (tensor for tensor, _ in self._known.values() if tensor is not written)
        if id(written) in self._operands or any(
            tensor.untyped_storage()._cdata == place for tensor in others
        ):
            self.refuse(f"writes to an operand or a view ({name_of(op)})")

    def _convert(self, argument: Known, tensor: Tensor) -> Known:
        """To the dtype of the tensor that it stands for."""
        if tensor.dtype not in (torch.float32, torch.bool):
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.refuse(f"computes {dtype}, where a program has float32 and bool alone")
        is_truth = self.builder.is_truth(argument)
        if tensor.dtype == torch.bool:
            return argument if is_truth else self.builder.add("ne", argument, 0.0)
        return self.builder.add("float", argument) if is_truth else argument

    def find_outputs(
        self, name: str, outputs: Sequence, shape: tuple[int, ...]
    ) -> tuple["Output", ...]:
        """What the function has returned, for (M, N) of `shape`."""
        check_tensors(name, outputs)
        for output in outputs:
            if output.shape != shape or output.dtype != torch.float32:
                found = describe(output)
                raise Refusal(f"{name}: it must return (M, N) of float32, got {found}")
        return (Output(),) * len(outputs)

    def _take(self, value):
        if isinstance(value, Tensor):
            return self.find(value)
        if isinstance(value, numbers.Real):
            return value if isinstance(value, bool) else float(value)
        if isinstance(value, numbers.Complex):
            self.refuse("computes with complex numbers")
        return value


class Output(NamedTuple):
    """width: columns that it has one element of. is_row: its shape is (M,)."""

    width: int = 1
    is_row: bool = False


def trace(
    name: str,
    function: Callable,
    shapes: Sequence[tuple[int, ...]],
    inputs: Sequence[Argument],
    make_tracer: Callable[[str], Tracer] = Tracer,
) -> tuple[Program, bool, tuple[Output, ...]]:
    """The program of function(*tensors) -> tensors of the shape of the first, (M, N), whether it
    gives a tuple of them, and what each is.

    inputs: what the tensors stand for. Raises Refusal.
    """
    with isolated(), torch.no_grad():
        tensors = [make_tensor(shape) for shape in shapes]
        tracer = make_tracer(name)
        for tensor, argument in zip(tensors, inputs, strict=True):
            tracer.take_input(tensor, argument)
        with OnCPU(), tracer:
            outputs = run_function(name, function, tensors)
    is_tuple = isinstance(outputs, (tuple, list))
    outputs = outputs if is_tuple else (outputs,)
    found = tracer.find_outputs(name, outputs, shapes[0])
    count = sum(not isinstance(argument, Acc) for argument in inputs)
    widths = tuple(output.width for output in found)
    values = [tracer.find(output) for output in outputs]
    program = tracer.builder.finish(count, values, tracer.columns, widths)
    return checked(name, program), is_tuple, found


@contextlib.contextmanager
def isolated():
    """From what is around a call: fake tensors, transforms of torch.func, inference mode, and
    torch.export, which writes down each change of the gradient mode, and keeps ops such as selu
    from being what they are made of."""
    with (
        _without_function_modes(),
        torch._C._DisablePythonDispatcher(),
        _disable_current_modes(),
        torch._C._DisableFuncTorch(),
        torch.inference_mode(False),
    ):
        yield


@contextlib.contextmanager
def _without_function_modes():
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


def make_tensor(shape: tuple[int, ...], requires_grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="meta", requires_grad=requires_grad)


def run_function(name: str, function: Callable, tensors: Sequence[Tensor]):
    """Its results. What it raises comes with its line."""
    try:
        return function(*tensors)
    except Refusal:
        raise
    except Exception as error:
        place = _name_line(_find_last(error.__traceback__))
        refusal = Refusal(f"{name}: {place} raises {type(error).__name__}: {error}")
        refusal.may_be_of_rows = True  # such as a view that does not fit the columns of a trace
        raise refusal from error


def checked(name: str, program: Program) -> Program:
    try:
        check_size(program)
    except ValueError as error:
        raise Refusal(f"{name}: {error}") from None
    return program


def check_tensors(name: str, outputs: Sequence) -> None:
    if not outputs:
        raise Refusal(f"{name}: it must return tensors, got none")
    for output in outputs:
        if not isinstance(output, Tensor):
            raise Refusal(f"{name}: it must return tensors, got {type(output).__name__}")


def describe(tensor: Tensor) -> str:
    return f"{name_shape(tensor)} of {str(tensor.dtype).removeprefix('torch.')}"


def name_shape(tensor: Tensor) -> str:
    """With M for what stands for it, where that is none of anybody's sizes."""
    names = {m: "M" for m in TRACED_ROWS}
    sizes = [str(names.get(size, size)) for size in tensor.shape]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def _find_out_of_place(op):
    """The rule of add for add_, as for all ops that write to their first argument alone."""
    namespace, _, packet = op._schema.name.partition("::")
    if namespace != "aten" or not packet.endswith("_") or not hasattr(_aten, packet[:-1]):
        return None
    return RULES.get(getattr(getattr(_aten, packet[:-1]), op._overloadname, None))


def name_of(op) -> str:
    return op.name().replace("::", ".").removesuffix(".default")


def _strip(shape: torch.Size) -> tuple[int, ...]:
    """Without the dimensions of 1 in front, which change no element's place."""
    first = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


def _find_line() -> str:
    """Of the function: the innermost that is neither PyTorch's nor ours."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_around(frame):
        frame = frame.f_back
    return _name_line(None if frame is None else (frame, frame.f_lineno))


def _find_last(traceback: TracebackType | None) -> tuple[FrameType, int] | None:
    """The innermost such line that was running when something was raised."""
    found = None
    while traceback is not None:
        if not _is_around(traceback.tb_frame):
            found = traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _is_around(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == "torch" or module.startswith(f"{_OURS}.")


def _name_line(place: tuple[FrameType, int] | None) -> str:
    if place is None:  # one of our own, such as linear_epilogue has by name
        return "it"
    code = place[0].f_code
    return f"the line {code.co_filename}:{place[1]} ({code.co_name})"
