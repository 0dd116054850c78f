"""Calls of linear_epilogue that PyTorch differentiates."""

import torch
from torch import Tensor

from .._library import ops
from ..functional._arguments import no_autocast
from ..functional._derivatives import add, differentiable, is_batched, keep_outputs
from ..functional._product import differentiate_matrices, keep_for_product
from ..weights.splits import find_split_under_grad
from .parse import parse
from .program import run
from .recorded import NOTHING, Recorded
from .traced import TracedFunction, differentiate_function, find_for_given, find_function

_linear_epilogue_op = ops.linear_epilogue.default
_apply_program_op = ops.apply_program.default


class LinearEpilogue(torch.autograd.Function):
    """Gives what the function gives, and acc where its gradient reads that."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, precision, recorded, *operands):
        text, out, *_ = recorded
        split = find_split_under_grad(weight, precision)
        results = _linear_epilogue_op(x, weight, list(operands), text, precision, out, split)
        return tuple(results)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.precision, recorded, *operands = inputs
        ctx.recorded = Recorded(*recorded)
        acc = output[-1] if len(output) > ctx.recorded.results else None
        constants = [output[index] for index in ctx.recorded.constants]
        keep_outputs(ctx, *constants, differentiable=acc, results=ctx.recorded.results)
        # Of a graph there is one backward pass, which is traced with it.
        is_compiled = torch.compiler.is_compiling()
        ctx.function = None if is_compiled else find_function(ctx.recorded)
        ctx.likes = [(operand.shape, operand.dtype) for operand in operands]
        kept = [
            operand if index in ctx.recorded.reads or ctx.recorded.is_first_order else None
            for index, operand in enumerate(operands, 1)
        ]
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, None), acc, *kept)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, *grads):
        x, weight, acc, *operands = saved
        needed, recorded = ctx.needs_input_grad, ctx.recorded
        of_results, of_acc = grads[: recorded.results], grads[recorded.results :]
        if all(grad is None for grad in grads):
            return (None,) * len(needed)
        with no_autocast(next(grad for grad in grads if grad is not None)):
            composed = composed or not torch.compiler.is_compiling() and is_batched()
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
                None if grad is None or not need else grad.sum_to_size(shape).to(dtype)
                for grad, (shape, dtype), need in zip(
                    of_operands, ctx.likes, needed[4:], strict=True
                )
            ]
        return *of_matrices, None, None, *of_operands


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
        recorded = find_for_given(function, recorded, tuple(grad is not None for grad in grads))
    like = next((grad for grad in grads if grad is not None), None)
    if like is None or not recorded.gradient_out:
        return recorded, [None] * len(recorded.places)
    grads = tuple(torch.zeros_like(like) if grad is None else grad for grad in grads)
    tensors = [acc, *operands, *grads]
    read = [tensors[index] for index in recorded.reads]
    first = grads[recorded.first]
    if not composed:
        arguments = (first, read, recorded.gradient, recorded.gradient_out)
        return recorded, _apply_program_op(*arguments)
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    found = run(parse(recorded.gradient), first.to(wide), [each.to(wide) for each in read])
    return recorded, [each.expand_as(like) for each in found]
