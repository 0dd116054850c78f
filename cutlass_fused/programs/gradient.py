"""The gradient of a function as a program of its own.

PyTorch's autograd differentiates the function itself while it is traced: what it detaches stays
so, and each activation has PyTorch's own derivative, which knows where exp overflows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .gradient_rules import GRADIENT_RULES, LINEAR
from .program import Acc, Argument, Operand, Program, keep_operands
from .trace import Tracer, check_outputs, checked, isolated, make_tensor, run_function

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.sum.default)


@dataclass(frozen=True)
class Gradient:
    """acc of the program is the gradient of the first output, an element of what a product of a
    backward pass is.

    operands: what the others are: an Operand of the function, its Acc, or the index of another
        output, whose gradient is meant.
    outputs: for each input that a gradient is asked for, acc first, the index of an output of the
        program, element by element: the gradient of an operand is the sum of it. None is zero.
    """

    program: Program
    operands: tuple[Argument | int, ...]
    outputs: tuple[int | None, ...]


class _GradientTracer(Tracer):
    """Knows the sums by which gradients of operands end: a program has the terms instead.

    What follows a sum must be linear in it, and the same for all terms.
    """

    rules = Tracer.rules | GRADIENT_RULES

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._sums: dict[int, Tensor] = {}

    def check_written(self, op, written: Tensor) -> None:
        """What autograd keeps is a view. The function alone has been traced before."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op in _SUMS:
            result = op(*args, **(kwargs or {}))
            self.stand_for(result, self.find(args[0]))
            self._sums[id(result)] = result
            return result
        result = super().__torch_dispatch__(op, types, args, kwargs)
        summed = [isinstance(each, Tensor) and id(each) in self._sums for each in args]
        if any(summed) and isinstance(result, Tensor):
            if op not in LINEAR or not LINEAR[op](*summed):
                self.refuse("has a gradient that is not linear in sums")
            self._sums[id(result)] = result
        return result


def trace_gradient(
    name: str,
    function: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    needed: Sequence[bool],
) -> Gradient:
    """Of function(acc, *operands). `needed` says of which of them. Raises Refusal."""
    # Hooks of saved tensors are a checkpoint's, say, which counts what the call around keeps.
    hooks = torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor)
    with isolated(), hooks:
        return _trace_gradient(name, function, shapes, needed)


def _trace_gradient(name, function, shapes, needed) -> Gradient:
    inputs: list[Argument] = [Acc(), *map(Operand, range(len(shapes) - 1))]
    tensors = list(map(make_tensor, shapes, needed))
    tracer = _GradientTracer(name)
    # While it is traced the inputs stand for operands; which of them are read is found behind that.
    count = len(inputs)
    for index, tensor in enumerate(tensors):
        tracer.stand_for(tensor, Operand(index))
    with torch.enable_grad(), tracer:
        outputs = run_function(name, function, tensors)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    check_outputs(name, outputs, shapes[0])
    grads = [make_tensor(shapes[0]) for _ in outputs]
    for index, grad in enumerate(grads):
        tracer.stand_for(grad, Operand(count + index - 1) if index else Acc())
    asked = [tensor for tensor, each in zip(tensors, needed, strict=True) if each]
    differentiated = [index for index, output in enumerate(outputs) if output.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(asked)
    if differentiated and asked:
        with tracer:
            found = torch.autograd.grad(
                [outputs[index] for index in differentiated],
                asked,
                [grads[index] for index in differentiated],
                allow_unused=True,
            )
    return _finish(name, tracer, inputs, found)


def _finish(name: str, tracer: Tracer, inputs: list[Argument], found) -> Gradient:
    arguments = [None if each is None else tracer.find(each) for each in found]
    # One output for all that are the same, as those of acc and of a bias. NaN is no constant of a
    # gradient, and -0.0 counts as 0.0.
    unique = list(dict.fromkeys(each for each in arguments if each is not None))
    outputs = tuple(None if each is None else unique.index(each) for each in arguments)
    program = tracer.builder.finish(0, unique)
    read = sorted(each.index for each in program.reads if isinstance(each, Operand))
    count = len(inputs)
    operands = tuple(inputs[i] if i < count else i - count + 1 for i in read)
    program = checked(f"{name}, its gradient", keep_operands(program, read))
    return Gradient(program, operands, outputs)
