"""Programs that PyTorch differentiates, to any order: the gradient of a program is a program again,
and each order is one kernel."""

import functools
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._library import ops
from ..functional._arguments import is_autocast_enabled, no_autocast
from ..functional._derivatives import differentiable, find_needed, is_batched
from .operands import TRACED_SIZES, find_traced_shape
from .parse import parse
from .program import (
    MOST_OUTPUTS,
    SUM,
    Acc,
    Operand,
    Program,
    find_sums,
    run,
    run_whole,
)
from .recorded import AS_ACC, AS_SUM, COPY, NOTHING, Derivative, Kind, make_derivative
from .tracing.gradient import trace_gradient
from .tracing.trace import Refusal

_apply_program_op = ops.apply_program.default


def run_derivative(
    derivative: Derivative,
    composed: bool,
    first: Tensor,
    read: Sequence[Tensor],
    asynchronous: bool = False,
) -> Sequence[Tensor]:
    """The outputs of its program of acc `first` and these operands; `composed`: differentiably."""
    if derivative.text == COPY and derivative.out == _name(first.dtype):
        return [first]
    if not composed:
        given = (first, list(read), derivative.text, derivative.out)
        return _apply_program_op(*given, *([True] if asynchronous else []))
    if torch.compiler.is_compiling() or _is_transformed():
        return compose(derivative.text, derivative.out, first, read)
    return apply(derivative.text, derivative.out, derivative.kinds, first, read)


def apply(
    text: str, out: str, kinds: tuple[Kind, ...], acc: Tensor, operands: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The outputs of a program, differentiably; not within a transform. `kinds`: of the
    operands."""
    needed = tuple(each.requires_grad for each in (acc, *operands))
    if not any(needed):
        return _apply_program_op(acc, list(operands), text, out)
    given = (True,) * (1 + out.count(","))
    dtypes = tuple(_name(each.dtype) for each in (acc, *operands))
    derivative = find_derivative(text, out, kinds, needed, given, dtypes)
    if derivative is None:
        return compose(text, out, acc, operands)
    return AppliedProgram.apply((text, out, kinds, dtypes), Derivative(*derivative), acc, *operands)


def compose(text: str, out: str, acc: Tensor, operands: Sequence[Tensor]) -> list[Tensor]:
    """The same by PyTorch's ops, in fp32 or float64."""
    wide = torch.float64 if acc.dtype == torch.float64 else torch.float32
    results = run_whole(parse(text), acc.to(wide), [each.to(wide) for each in operands])
    return [
        each.sum_to_size(each.shape[-1:]) if is_sum else each
        for each, is_sum in zip(results, find_sums(out), strict=True)
    ]


class AppliedProgram(torch.autograd.Function):
    """Keeps what its derivative reads."""

    @staticmethod
    def forward(ctx, program, derivative, acc, *operands):
        text, out, *_ = ctx.program = program
        ctx.derivative = derivative
        ctx.set_materialize_grads(False)
        ctx.is_compiled, ctx.results = False, 1 + out.count(",")
        ctx.likes = [(each.shape, each.dtype) for each in (acc, *operands)]
        ctx.save_for_backward(
            *(each if i in derivative.reads else None for i, each in enumerate((acc, *operands)))
        )
        return tuple(_apply_program_op(acc, list(operands), text, out))

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, *grads):
        needed = ctx.needs_input_grad
        if composed:
            needed = find_needed(ctx, (False, False, *[True] * len(ctx.likes)))
        needed = needed[2:]
        like = next((grad for grad in grads if grad is not None), None)
        if like is None:
            return (None,) * (2 + len(needed))
        derivative = _find_for_given(ctx, saved, grads)
        zeros, first = _fill(ctx, grads, like, derivative.first)
        tensors = [*saved, *zeros]
        read = [tensors[index] for index in derivative.reads]
        if not derivative.out:
            return (None,) * (2 + len(needed))
        is_compiled = torch.compiler.is_compiling()
        composed = composed or not is_compiled and is_batched()
        is_cast = is_compiled or is_autocast_enabled(like)
        with no_autocast(like) if is_cast else nullcontext():
            found = run_derivative(derivative, composed, first, read)
            wanted = [
                None if place == NOTHING or not need else found[place]
                for place, need in zip(derivative.places, needed, strict=True)
            ]
            gradients = sum_all(wanted, ctx.likes, composed)
        return None, None, *gradients


def _fill(ctx, grads, like: Tensor, first: int) -> tuple[list[Tensor], Tensor]:
    """Zeros for those that are none, as the results have dtypes of their own. And the first as acc
    of a program: that of a sum is the same in all rows."""
    (shape, _), sums = ctx.likes[0], find_sums(ctx.program[1])
    zeros = [
        like.new_zeros(shape[-1:] if is_sum else shape) if grad is None else grad
        for grad, is_sum in zip(grads, sums, strict=True)
    ]
    return zeros, zeros[first].expand(shape) if sums[first] else zeros[first]


def _find_for_given(ctx, saved, grads) -> Derivative:
    """For the results that have gradients: there 0 times infinity is not NaN. Where that would read
    what was not kept, all others count as zeros."""
    given = tuple(grad is not None for grad in grads)
    if all(given):
        return ctx.derivative
    text, out, kinds, dtypes = ctx.program
    needed = tuple(place != NOTHING for place in ctx.derivative.places)
    found = find_derivative(text, out, kinds, needed, given, dtypes)
    if found is None:
        return ctx.derivative
    found = Derivative(*found)
    is_there = all(index >= len(saved) or saved[index] is not None for index in found.reads)
    return found if is_there else ctx.derivative


@torch._dynamo.assume_constant_result
def find_derivative(
    text: str,
    out: str,
    kinds: tuple[Kind, ...],
    needed: tuple[bool, ...],
    given: tuple[bool, ...],
    dtypes: tuple[str, ...],
) -> tuple | None:
    """The Derivative of a program; None where it is no program. `out`: of its results, which the
    op is given; `kinds`: of its operands; `dtypes` of acc and of them; `needed`: which of these
    want a gradient; `given`: which results have one."""
    return _find_derivative(text, find_sums(out), kinds, needed, given, dtypes)


@functools.lru_cache(maxsize=1024)
def _find_derivative(text, sums, kinds, needed, given, dtypes) -> tuple | None:
    program, sizes = parse(text), TRACED_SIZES[0]
    wide = "float64" if dtypes[0] == "float64" else "float32"

    def function(acc, *operands):
        results = run(program, acc, operands)
        return [each.expand_as(acc) for each in results]

    shapes = [sizes, *(find_traced_shape(*kind, sizes) for kind in kinds)]
    try:
        gradient = trace_gradient("the gradient", function, shapes, needed, given)
    except Refusal:
        return None
    of_results = tuple(AS_SUM if is_sum else AS_ACC for is_sum in sums)
    return tuple(make_derivative(gradient, needed, kinds, of_results, wide, dtypes))


def sum_to(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """grad.sum_to_size(shape).to(dtype), with nothing done where nothing is to do. `grad` may be a
    sum over the rows already."""
    if grad.dim() < len(shape):
        grad = grad.reshape(*(1,) * (len(shape) - 1), -1)
    if torch.compiler.is_compiling():
        return grad.sum_to_size(shape).to(dtype)
    if grad.dim() == 2 and shape == grad.shape[1:]:
        is_wider = dtype == torch.float32 and grad.dtype.itemsize == 2
        grad = grad.sum(0, dtype=dtype if is_wider else None)
    elif shape != grad.shape:
        grad = grad.sum_to_size(shape)
    return grad if grad.dtype == dtype else grad.to(dtype)


def sum_all(
    grads: Sequence[Tensor | None],
    likes: Sequence[tuple[torch.Size, torch.dtype]],
    composed: bool,
    asynchronous: bool = False,
) -> list[Tensor | None]:
    """sum_to of each that is there: those over the rows of matrices by one kernel, where there is
    one, or can be: in a graph that is captured nothing is linked. `composed`: differentiably."""
    tiles: list[tuple[Tensor, torch.dtype]] = []
    places: dict[int, int] = {}
    for index, (grad, (shape, dtype)) in enumerate(zip(grads, likes, strict=True)):
        if composed or grad is None or not _has_kernel(grad, shape, dtype):
            continue
        same = (i for i, (tile, other) in enumerate(tiles) if tile is grad and other == dtype)
        place = next(same, len(tiles))
        if place == MOST_OUTPUTS or tiles and grad.shape != tiles[0][0].shape:
            continue
        if place == len(tiles):
            tiles.append((grad, dtype))
        places[index] = place
    sums = _add_rows(tiles, asynchronous) if tiles else []
    return [
        sums[places[index]]
        if sums and index in places
        else None
        if grad is None
        else sum_to(grad, *like)
        for index, (grad, like) in enumerate(zip(grads, likes, strict=True))
    ]


# Whether calls are recorded, of tensors that stand for others, to be linked ahead of time.
is_recorded = False


def _has_kernel(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> bool:
    """Whether a program adds up the rows of `grad`: not while a graph is traced, which fuses sums
    itself."""
    return (
        (is_recorded or type(grad) is Tensor and grad.is_cuda)
        and not torch.compiler.is_compiling()
        and grad.dim() > 1
        and shape == grad.shape[-1:]
        and torch.float64 not in (grad.dtype, dtype)
        and grad.numel() > 0
        and grad.is_contiguous()
    )


def _add_rows(tiles: list[tuple[Tensor, torch.dtype]], asynchronous: bool) -> Sequence[Tensor]:
    """Nothing where the kernel cannot be made now."""
    first, *others = (grad.reshape(-1, grad.shape[-1]) for grad, _ in tiles)
    text = Program(len(others), (), (Acc(), *map(Operand, range(len(others))))).text
    out = ",".join(SUM + _name(dtype) for _, dtype in tiles)
    try:
        return _apply_program_op(first, others, text, out, *([True] if asynchronous else []))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return []


def _is_transformed() -> bool:
    """Whether a gradient is taken within torch.func or in forward mode, or of a batch of
    gradients."""
    return (
        forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or is_batched()
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
