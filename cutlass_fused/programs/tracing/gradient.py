"""The gradient of a function as a program of its own.

PyTorch's autograd differentiates the function itself while it is traced: what that detaches is
constant, and each activation has PyTorch's own derivative, which knows where exp overflows. Of the
program's own derivative the first need not hold: see Gradient.is_first_order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..program import Acc, Argument, Operand, Program, keep_operands
from .constants import OnCPU
from .gradient_rules import GRADIENT_RULES, IN_ALL, IN_EITHER, IN_FIRST
from .row_rules import SUMS
from .trace import Output, Tracer, checked, isolated, make_tensor, run_function

_aten = torch.ops.aten
NOTHING = -1


@dataclass(frozen=True)
class Gradient:
    """acc of the program is the gradient of the first of the given results, an element of what a
    product of a backward pass is.

    forward: the function's own program, as it was when it was differentiated.
    operands: what the others are: an Operand of the function, its Acc, or the index of another
        result, whose gradient is meant.
    outputs: for each input that a gradient is asked for, acc first, the index of an output of the
        program, element by element: the gradient of an operand is the sum of it. None is zero.
    first: of the given results. NOTHING: acc is that of the function, as no result has (M, N).
    constants: the results that have no gradient.
    is_first_order: the function stops gradients, by detach or no_grad, of which the program knows
        nothing: its own derivative is none of the function.
    """

    program: Program
    forward: Program
    operands: tuple[Argument | int, ...]
    outputs: tuple[int | None, ...]
    first: int
    constants: tuple[int, ...]
    is_first_order: bool


class GradientTracer(Tracer):
    """Knows the sums by which gradients of operands end: a program has the terms instead.

    What follows a sum must be linear in it, and the same for all terms.
    """

    rules = Tracer.rules | GRADIENT_RULES
    keeps_inputs = False  # whether the gradient is always of first order: see Gradient

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._sums: dict[int, Tensor] = {}
        self.is_keeping = False
        self.is_forward, self.is_first_order = True, False

    def keep(self, tensor: Tensor) -> Tensor:
        """A hook for what autograd keeps."""
        self.is_keeping = True
        try:
            return tensor.detach()
        finally:
            self.is_keeping = False

    def check_written(self, op, written: Tensor) -> None:
        """What autograd keeps is a view. The function alone has been traced before."""

    def is_sum(self, tensor: Tensor) -> bool:
        """Or is zero, which is the sum of zeros."""
        return id(tensor) in self._sums or self.find(tensor) == 0.0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if self.is_forward and not self.is_keeping:
            is_stopped = op in self.rules and not torch.is_grad_enabled()
            is_detached = op is _aten.detach.default and not self.hands_over(op, args, self._made)
            self.is_first_order |= is_stopped or is_detached
        if op in SUMS and not self.is_forward:
            result = op(*args, **(kwargs or {}))
            self.name_sum(result, *args, **(kwargs or {}))
            return result
        result = super().__torch_dispatch__(op, types, args, kwargs)
        summed = [isinstance(each, Tensor) and id(each) in self._sums for each in args]
        if any(summed):
            if not isinstance(result, Tensor) or not self._is_linear(op, args, summed):
                self.refuse("has a gradient that is not linear in sums")
            self._sums[id(result)] = result
        return result

    def name_sum(self, result: Tensor, x: Tensor, *dims, **options) -> None:
        self.stand_for(result, self.find(x))
        self.mark_sum(result)

    def mark_sum(self, result: Tensor) -> None:
        self._sums[id(result)] = result

    def take_operand(self, tensor: Tensor, operand: Operand) -> None:
        """An input of the function, acc too."""
        self.stand_for(tensor, operand)

    def take_gradient(self, tensor: Tensor, argument: Argument, output: Output) -> None:
        self.stand_for(tensor, argument)

    def choose_first(self, outputs: Sequence[Output], given: Sequence[bool]) -> int:
        return next(index for index, each in enumerate(given) if each)

    def is_of(self, tensor: Tensor, gradient: Tensor, shape: tuple[int, ...]) -> bool:
        """Whether it is the gradient of an input beside acc of a shape."""
        return tensor.shape == shape or self.is_sum(gradient)

    def find_width(self, gradient: Tensor) -> int:
        return 1

    def _is_linear(self, op, args, summed: list[bool]) -> bool:
        if op in IN_FIRST:
            return summed[0] and not any(summed[1:])
        if op in IN_ALL:
            values = [each for each in args[-2:] if isinstance(each, Tensor)]
            return len(values) == 2 and all(map(self.is_sum, values))
        return op in IN_EITHER and sum(summed) == 1


def trace_gradient(
    name: str,
    function: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    needed: Sequence[bool],
    given: Sequence[bool] | None = None,
    make_tracer: Callable[[str], GradientTracer] = GradientTracer,
) -> Gradient:
    """Of function(acc, *operands). `needed` says of which of them, `given` which results have a
    gradient: by default all. Raises Refusal."""
    tracer = make_tracer(name)
    # Hooks of saved tensors are a checkpoint's, say, which counts what the call around keeps.
    hooks = torch.autograd.graph.saved_tensors_hooks(tracer.keep, lambda tensor: tensor)
    with isolated(), hooks:
        return _trace_gradient(tracer, name, function, shapes, needed, given)


def _trace_gradient(tracer, name, function, shapes, needed, given) -> Gradient:
    inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
    tensors = list(map(make_tensor, shapes, needed))
    # While it is traced the inputs stand for operands; which of them are read is found behind that.
    count = len(inputs)
    for index, tensor in enumerate(tensors):
        tracer.take_operand(tensor, Operand(index))
    with torch.enable_grad(), OnCPU(), tracer:
        # acc is no leaf, and may be written to.
        outputs = run_function(name, function, [tensors[0] * 1.0, *tensors[1:]])
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    tracer.is_forward = False
    kinds = tracer.find_outputs(name, outputs, shapes[0])
    widths = tuple(each.width for each in kinds)
    values = list(map(tracer.find, outputs))
    forward = tracer.builder.finish(count, values, tracer.columns, widths)
    given = [True] * len(outputs) if given is None else given
    grads = [make_tensor(y.shape) if each else None for y, each in zip(outputs, given, strict=True)]
    first = tracer.choose_first(kinds, given)
    for index, grad in enumerate(grads):
        if grad is not None:
            argument = Acc() if index == first else Operand(count + index)
            tracer.take_gradient(grad, argument, kinds[index])
    asked = [tensor for tensor, each in zip(tensors, needed, strict=True) if each]
    differentiated = [i for i, each in enumerate(outputs) if given[i] and each.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(asked)
    if differentiated and asked:
        with tracer:
            found = run_function(
                name,
                torch.autograd.grad,
                [
                    [outputs[index] for index in differentiated],
                    asked,
                    [grads[index] for index in differentiated],
                    None,  # retain_graph
                    False,  # create_graph
                    True,  # only_inputs
                    True,  # allow_unused
                ],
            )
    for tensor, each in zip(asked, found, strict=True):
        if each is not None and not tracer.is_of(tensor, each, shapes[0]):
            tracer.refuse("has a gradient of an operand that is no sum")
    constants = tuple(i for i, each in enumerate(outputs) if not each.requires_grad)
    return _finish(name, tracer, inputs, found, forward, first, constants)


def _finish(name: str, tracer: Tracer, inputs: list[Argument], found, forward, first, constants):
    arguments = [
        None if each is None else (tracer.find(each), tracer.find_width(each)) for each in found
    ]
    # One output for all that are the same, as those of acc and of a bias. NaN is no constant of a
    # gradient, and -0.0 counts as 0.0.
    unique = list(dict.fromkeys(each for each in arguments if each is not None))
    outputs = tuple(None if each is None else unique.index(each) for each in arguments)
    values, widths = [each for each, _ in unique], tuple(width for _, width in unique)
    program = tracer.builder.finish(0, values, tracer.columns, widths)
    read = sorted(each.index for each in program.reads if isinstance(each, Operand))
    acc = Operand(0) if first == NOTHING else None
    read = [index for index in read if acc is None or index != acc.index]
    count = len(inputs)
    operands = tuple(inputs[i] if i < count else i - count for i in read)
    program = checked(f"{name}, its gradient", keep_operands(program, read, acc))
    own = keep_operands(forward, range(1, count), acc=Operand(0))
    is_first_order = tracer.is_first_order or tracer.keeps_inputs
    return Gradient(program, own, operands, outputs, first, constants, is_first_order)
