"""Calls of linear_epilogue that PyTorch differentiates."""

from contextlib import nullcontext

import torch
from torch import Tensor

from .._library import ops
from ..functional._arguments import is_autocast_enabled, no_autocast
from ..functional._derivatives import add, differentiable, is_batched, keep_outputs
from ..functional._product import differentiate_matrices, keep_for_product
from ..weights.splits import find_split_under_grad
from .parse import parse
from .program import run_whole
from .recorded import NOTHING, Recorded
from .traced import TracedFunction, differentiate_function, find_for_given, find_function

_linear_epilogue_op = ops.linear_epilogue.default
_apply_program_op = ops.apply_program.default
_AS_IT_IS = nullcontext()


class LinearEpilogue(torch.autograd.Function):
    """Gives what the function gives, and acc where its gradient reads that."""

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
        ctx.recorded = recorded = Recorded(*recorded)
        acc = output[-1] if len(output) > recorded.results else None
        constants = [output[index] for index in recorded.constants]
        keep_outputs(ctx, *constants, differentiable=acc, results=recorded.results)
        # Of a graph there is one backward pass, which is traced with it.
        is_compiled = torch.compiler.is_compiling()
        ctx.function = None if is_compiled else find_function(recorded)
        ctx.likes = [(operand.shape, operand.dtype) for operand in operands]
        kept = [
            operand if index in recorded.reads or recorded.is_first_order else None
            for index, operand in enumerate(operands, 1)
        ]
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, None), acc, *kept)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, *grads):
        needed, recorded = ctx.needs_input_grad, ctx.recorded
        given = next((grad for grad in grads if grad is not None), None)
        if given is None:
            return (None,) * len(needed)
        x, weight, acc, *operands = saved
        is_compiled = torch.compiler.is_compiling()
        composed = composed or not is_compiled and is_batched()
        is_cast = is_compiled or is_autocast_enabled(given)
        with no_autocast(given) if is_cast else _AS_IT_IS:
            of_results, of_acc = grads[: recorded.results], grads[recorded.results :]
            recorded, found = _run_gradient(
                ctx.function, recorded, composed, of_results, acc, operands
            )
            of_z, *of_operands = (
                None if place == NOTHING else found[place] for place in recorded.places
            )
            grad_z = add(of_z, of_acc[0] if of_acc else None)
            of_matrices = (None, None)
            if grad_z is not None:
                of_matrices = differentiate_matrices(ctx, grad_z, x, weight)
            of_operands = [
                None if grad is None or not need else _sum_to(grad, *like)
                for grad, like, need in zip(of_operands, ctx.likes, needed[4:], strict=True)
            ]
        return *of_matrices, None, None, *of_operands


def _sum_to(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """grad.sum_to_size(shape).to(dtype), with nothing done where nothing is to do."""
    if torch.compiler.is_compiling():
        return grad.sum_to_size(shape).to(dtype)
    if grad.dim() == 2 and shape == grad.shape[1:]:
        grad = grad.sum(0)
    elif shape != grad.shape:
        grad = grad.sum_to_size(shape)
    return grad if grad.dtype == dtype else grad.to(dtype)


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
    function: TracedFunction | None,
    recorded: Recorded,
    composed: bool,
    grads: tuple[Tensor | None, ...],
    acc: Tensor | None,
    operands: list[Tensor | None],
) -> tuple[Recorded, list[Tensor | None]]:
    """The outputs of the gradient's program, if it has any, and what it was. Where they are to be
    `composed`, they are PyTorch's ops, which it differentiates again."""
    if function is not None and composed and recorded.is_first_order:
        return differentiate_function(function, recorded, grads, acc, operands)
    given = [grad is not None or i in recorded.constants for i, grad in enumerate(grads)]
    if function is not None and not all(given) and any(grad is not None for grad in grads):
        asynchronous = recorded.asynchronous
        recorded = find_for_given(function, recorded, tuple(grad is not None for grad in grads))
        recorded = recorded._replace(asynchronous=asynchronous)
    like = next((grad for grad in grads if grad is not None), None)
    if like is None or not recorded.gradient_out:
        return recorded, [None] * len(recorded.places)
    if None in grads:
        grads = _fill(recorded, grads, like, acc)
    tensors = [acc, *operands, *grads]
    read = [tensors[index] for index in recorded.reads]
    first = acc if recorded.first == NOTHING else grads[recorded.first]
    if not composed:
        arguments = (first, read, recorded.gradient, recorded.gradient_out)
        return recorded, _apply_program_op(*arguments, *([True] if recorded.asynchronous else []))
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    program = parse(recorded.gradient)
    return recorded, run_whole(program, first.to(wide), [each.to(wide) for each in read])


def _fill(recorded: Recorded, grads, like: Tensor, acc: Tensor | None) -> tuple[Tensor, ...]:
    """Zeros for those that are none."""
    program = parse(recorded.text)
    shapes = [like.shape] * len(grads)
    if program.columns:
        widths = program.widths or (1,) * len(program.outputs)
        shapes = [(*acc.shape[:-1], program.columns // width) for width in widths[: len(grads)]]
    pairs = zip(grads, shapes, strict=True)
    return tuple(like.new_zeros(shape) if grad is None else grad for grad, shape in pairs)
