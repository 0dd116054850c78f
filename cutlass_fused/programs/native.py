"""Calls of an epilogue with gradients in C++ (src/switch/programs.cpp), where nothing but autograd
looks at them: a torch.autograd.Function in Python takes longer on the host than the layers that it
stands for. What C++ does not know of a program, it asks for here."""

import functools

import torch
from torch import Tensor

from .._namespace import NAMESPACE, ops
from ..functional._derived import native
from ..weights import accumulated, splits
from .differentiable import compose, find_derivative
from .recorded import Derivative, Kind, Recorded, add_to_gradient
from .traced import TracedFunction, differentiate_function, read_request, write_request


def write_call(x: Tensor, weight: Tensor, recorded: Recorded, kinds: tuple[Kind, ...]):
    """What C++ reads of a call (derivative.cpp); None where it is Python's. `kinds`: of the
    operands. All that decides it is in what `seen.describe` says."""
    if recorded.results != 1 or recorded.constants or not native.is_served(x, weight, None):
        return None
    request = write_request(recorded) if recorded.is_first_order else ""
    if request is None:
        return None
    added = add_to_gradient(recorded.gradient, recorded.shift, recorded.results)
    return "|".join(
        (
            *(recorded.text, recorded.out, _write_kinds(kinds), str(recorded.shift)),
            _write_derivative(recorded.gradient),
            _write_derivative(added),
            request,
        )
    )


def takes() -> bool:
    """Whether C++ can take a call that `write_call` has written: no mode looks at it."""
    return torch._C._len_torch_dispatch_stack() == 0


def run(
    x: Tensor,
    weight: Tensor,
    tensors: list[Tensor],
    call: str,
    precision: str,
    asynchronous: bool,
) -> Tensor:
    splits.forget_trained(weight)
    more = *splits.share(weight, precision), asynchronous, accumulated.find_buffer(weight)
    return _op()(x, weight, tensors, call, precision, *more)


def hold(result: Tensor, function: TracedFunction) -> None:
    """The function stays as long as the graph that may differentiate it again."""
    result.grad_fn.metadata["cutlass_fused"] = function


@functools.cache
def _op():
    """Is there where native.is_served says so."""
    for key in ("FuncTorchDynamicLayerFrontMode", "Batched", "CompositeImplicitAutograd"):
        _kernels.impl("transformed_program", _compose, key)
        _kernels.impl("gradient_by_pytorch", _differentiate, key)
    _kernels.impl("gradient_of_program", _find_gradient, "CompositeImplicitAutograd")
    return ops.linear_epilogue_with_gradient.default


def _compose(acc: Tensor, operands: list[Tensor], program: str, out: str) -> list[Tensor]:
    return compose(program, out, acc, operands)


def _differentiate(
    acc: Tensor, operands: list[Tensor], grad: Tensor, request: str, needed: list[bool]
) -> tuple[list[Tensor], list[bool]]:
    """The gradients that there are among those needed of acc and the operands, and which these
    are."""
    function, key = read_request(request)
    found = differentiate_function(function, key, tuple(needed), (grad,), acc, operands)
    return [each for each in found if each is not None], [each is not None for each in found]


def _find_gradient(program: str) -> str:
    text, kinds, out, needed, given, dtypes = program.split("|")
    found = find_derivative(
        text,
        out,
        _read_kinds(kinds),
        tuple(each == "1" for each in needed),
        tuple(each == "1" for each in given),
        tuple(dtypes.split(",")),
    )
    return _write_derivative(None if found is None else Derivative(*found))


def _write_derivative(derivative: Derivative | None) -> str:
    if derivative is None:
        return "|||0||"
    text, out, first, reads, kinds, places = derivative
    numbers = (",".join(map(str, each)) for each in (reads, places))
    return "|".join((text, out, _write_kinds(kinds), str(first), *numbers))


def _write_kinds(kinds: tuple[Kind, ...]) -> str:
    return ",".join(f"{kind} {dimensions}" for kind, dimensions in kinds)


def _read_kinds(words: str) -> tuple[Kind, ...]:
    pairs = (each.split(" ") for each in words.split(",") if each)
    return tuple((kind, int(dimensions)) for kind, dimensions in pairs)


# They stay as long as the ops do.
_kernels = torch.library.Library(NAMESPACE, "IMPL")
