"""Calls of linear_epilogue that PyTorch differentiates."""

import functools
from contextlib import nullcontext

import torch
from torch import Tensor

from .._library import ops
from ..functional._arguments import is_autocast_enabled, no_autocast
from ..functional._derivatives import add, differentiable, find_needed, is_batched, keep_outputs
from ..functional._product import differentiate_matrices, keep_for_product
from ..weights.splits import find_split_under_grad
from .differentiable import run_derivative, sum_all, sum_to
from .parse import parse
from .recorded import NOTHING, Recorded, add_to_gradient, is_result_kept, read_recorded
from .traced import differentiate_function, find_for_given, find_function

_linear_epilogue_op = ops.linear_epilogue.default
_AS_IT_IS = nullcontext()


class LinearEpilogue(torch.autograd.Function):
    """Gives what the function gives, and acc where its gradient reads that: or the sum of acc and
    the operand that is its shift."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, precision, recorded, *operands):
        text, out, *_, asynchronous = recorded
        split = find_split_under_grad(weight, precision)
        given = (x, weight, list(operands), text, precision, out, split)
        return tuple(_linear_epilogue_op(*given, *([True] if asynchronous else [])))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.precision, recorded, *operands = inputs
        ctx.recorded = recorded = read_recorded(recorded)
        acc = output[-1] if len(output) > recorded.results else None
        constants = [output[index] for index in recorded.constants]
        kept_acc = output[0] if is_result_kept(recorded, len(output)) else acc
        keep_outputs(ctx, *constants, differentiable=acc, results=recorded.results)
        # Of a graph there is one backward pass, which is traced with it.
        is_compiled = torch.compiler.is_compiling()
        ctx.function = None if is_compiled else find_function(recorded)
        ctx.likes = [(operand.shape, operand.dtype) for operand in operands]
        kept = [
            operand if index in recorded.gradient.reads or recorded.is_first_order else None
            for index, operand in enumerate(operands, 1)
        ]
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, None), kept_acc, *kept)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, *grads):
        needed = ctx.needs_input_grad
        if composed:
            needed = find_needed(ctx, (True, True, False, False, *[True] * len(ctx.likes)))
        given = next((grad for grad in grads if grad is not None), None)
        if given is None:
            return (None,) * len(ctx.needs_input_grad)
        x, weight, acc, *operands = saved
        is_compiled = torch.compiler.is_compiling()
        composed = composed or not is_compiled and is_batched()
        is_cast = is_compiled or is_autocast_enabled(given)
        with no_autocast(given) if is_cast else _AS_IT_IS:
            if composed and is_result_kept(ctx.recorded, len(grads)):
                acc = acc.detach()  # the gradient is constant in it, as of a ReLU
            grad_z, *of_operands = _run_gradient(ctx, composed, grads, acc, operands)
            of_matrices = (None, None)
            if grad_z is not None:
                of_matrices = differentiate_matrices(ctx, grad_z, x, weight, needed)
            wanted = [
                grad if need else None for grad, need in zip(of_operands, needed[4:], strict=True)
            ]
            of_operands = sum_all(wanted, ctx.likes, composed, ctx.recorded.asynchronous)
        return *of_matrices, None, None, *of_operands


# LinearEpilogue.apply less the names and defaults of arguments, and what transforms of torch.func
# need: to find those takes longer than all else.
_apply = super(torch.autograd.Function, LinearEpilogue).apply


def differentiate_call(
    x: Tensor, weight: Tensor, precision: str, recorded: Recorded, operands: list[Tensor]
) -> tuple[Tensor, ...]:
    """The results of a call, differentiably; not within a transform."""
    is_compiled = torch.compiler.is_compiling()
    apply = LinearEpilogue.apply if is_compiled else _apply
    results = apply(x, weight, precision, recorded, *operands)
    return results[: recorded.results]


def _run_gradient(
    ctx,
    composed: bool,
    grads: tuple[Tensor | None, ...],
    acc: Tensor | None,
    operands: list[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of acc and of the operands, element by element. `grads`: of the results, and of
    acc where it is one."""
    function, recorded = ctx.function, ctx.recorded
    of_results = grads[: recorded.results]
    of_acc = grads[-1] if len(grads) > recorded.results else None
    if function is not None and composed and recorded.is_first_order:
        _, key, _, needed, *_ = recorded.request
        of_z, *others = differentiate_function(function, key, needed, of_results, acc, operands)
        return [add(of_z, of_acc), *others]
    derivative, shift = recorded.gradient, recorded.shift
    found: list[Tensor | None] = [None] * len(derivative.places)
    like = next((grad for grad in of_results if grad is not None), None)
    if like is not None and derivative.out:
        given = tuple(grad is not None for grad in of_results)
        is_missing = any(not each and i not in recorded.constants for i, each in enumerate(given))
        if function is not None and is_missing:
            derivative = find_for_given(function, recorded, given)
        zeros = _spread(recorded, _fill(recorded, of_results, like, acc))
        tensors = [acc, *operands, *zeros]
        if of_acc is not None and not torch.compiler.is_compiling():  # which fuses sums itself
            added = add_to_gradient(derivative, shift, recorded.results)
            if added is not None:
                derivative, of_acc = added, None
                tensors.append(grads[-1])
        read = [tensors[index] for index in derivative.reads]
        first = acc if derivative.first == NOTHING else zeros[derivative.first]
        outputs = run_derivative(derivative, composed, first, read, recorded.asynchronous)
        found = [None if place == NOTHING else outputs[place] for place in derivative.places]
    if of_acc is not None:
        _add_to_found(found, of_acc, shift)
    return found


def _add_to_found(found: list[Tensor | None], of_acc: Tensor, shift: int) -> None:
    of_shift = None if shift == NOTHING else found[1 + shift]
    if found[0] is None and of_shift is not None and of_shift.shape != of_acc.shape:
        # A sum over the rows; nobody asks for the gradient of acc.
        found[1 + shift] = of_shift + sum_to(of_acc, of_shift.shape, of_shift.dtype)
        return
    found[0] = add(found[0] if found[0] is not None else of_shift, of_acc)
    if shift != NOTHING:
        found[1 + shift] = found[0]


def _spread(recorded: Recorded, grads: list[Tensor]) -> list[Tensor]:
    """Those of groups of columns in all of their columns, as a program reads them."""
    widths = _find_groups(recorded.text, recorded.results)
    if not widths:
        return grads
    pairs = zip(grads, widths, strict=True)
    return [grad if width == 1 else grad.repeat_interleave(width, -1) for grad, width in pairs]


@torch._dynamo.assume_constant_result
def _find_groups(text: str, results: int) -> tuple[int, ...]:
    """Of each result of a program the columns of a group that it has one element of, and 1 where it
    has one of each column or of each row; () where all are such."""
    return _find_groups_once(text, results)


@functools.lru_cache(maxsize=1024)
def _find_groups_once(text: str, results: int) -> tuple[int, ...]:
    program = parse(text)
    widths = (program.widths or (1,) * results)[:results]
    widths = tuple(1 if width == program.columns else width for width in widths)
    return widths if any(width > 1 for width in widths) else ()


def _fill(
    recorded: Recorded, grads: tuple[Tensor | None, ...], like: Tensor, acc: Tensor | None
) -> list[Tensor]:
    """Zeros for those that are none."""
    if all(grad is not None for grad in grads):
        return list(grads)
    program, shapes = parse(recorded.text), [like.shape] * len(grads)
    if program.columns:
        widths = program.widths or (1,) * len(program.outputs)
        shapes = [(*acc.shape[:-1], program.columns // width) for width in widths[: len(grads)]]
    pairs = zip(grads, shapes, strict=True)
    return [like.new_zeros(shape) if grad is None else grad for grad, shape in pairs]
