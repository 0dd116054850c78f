"""Calls of linear_epilogue that PyTorch differentiates."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._library import ops
from ..functional._arguments import no_autocast
from ..functional._derivatives import add, differentiable, keep_outputs
from ..functional._product import differentiate_matrices, keep_for_product
from ..weights.splits import find_split_under_grad
from .gradient import Gradient
from .operands import TILE
from .parse import parse
from .program import Acc, Operand, run

_linear_epilogue_op = ops.linear_epilogue.default
_apply_program_op = ops.apply_program.default
_NOTHING = -1


class Recorded(NamedTuple):
    """What a call with gradients runs, in strings and numbers, which TorchDynamo takes for
    constants.

    text: the function's program, with acc behind its outputs where the gradient reads it.
    out: the dtypes of those by name.
    results: how many outputs are the function's own.
    gradient: the text of the gradient's program.
    reads: its operands, as indices into acc, the operands of the function, and the gradients of
        all results.
    places: of acc and each operand, which of its outputs is the gradient; -1 is none.
    gradient_out: the dtypes of its outputs by name.
    """

    text: str
    out: str
    results: int
    gradient: str
    reads: tuple[int, ...]
    places: tuple[int, ...]
    gradient_out: str


def record(
    text: str,
    gradient: Gradient,
    needed: tuple[bool, ...],
    kinds: tuple[str, ...],
    out: str,
    wide: str,
    inputs: tuple[str, ...],
) -> Recorded:
    """needed: whether the gradients of acc and of each operand are asked for. kinds: of the
    operands. out: the dtype of all results by name; wide: that of acc; inputs: those that the
    gradients of acc and of the operands get."""
    head, _, outputs = text.rpartition("\nreturn ")
    results = len(outputs.split())
    dtypes = [out] * results
    if Acc() in gradient.operands:
        text = f"{head}\nreturn {outputs.rstrip()} acc\n"
        dtypes.append(wide)
    found = iter(gradient.outputs)
    places = [next(found) if each else None for each in needed]
    gradient_dtypes: dict[int, str] = {}
    for place, dtype, kind in zip(places, inputs, (TILE, *kinds), strict=True):
        if place is not None:
            # Of the terms of a sum none is rounded, but where acc has the same gradient.
            gradient_dtypes.setdefault(place, dtype if kind == TILE else wide)
    return Recorded(
        text,
        ",".join(dtypes),
        results,
        gradient.program.text,
        tuple(_find_index(each, len(kinds)) for each in gradient.operands),
        tuple(_NOTHING if place is None else place for place in places),
        ",".join(gradient_dtypes[place] for place in sorted(gradient_dtypes)),
    )


def _find_index(argument, operands: int) -> int:
    if isinstance(argument, Acc):
        return 0
    return 1 + argument.index if isinstance(argument, Operand) else 1 + operands + argument


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
        keep_outputs(ctx, differentiable=acc, results=ctx.recorded.results)
        ctx.likes = [(operand.shape, operand.dtype) for operand in operands]
        kept = [
            operand if index in ctx.recorded.reads else None
            for index, operand in enumerate(operands, 1)
        ]
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, None), acc, *kept)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, *grads):
        x, weight, acc, *operands = saved
        recorded = ctx.recorded
        needed = ctx.needs_input_grad
        given = [grad for grad in grads if grad is not None]
        if not given:
            return (None,) * len(needed)
        of_acc = grads[recorded.results] if len(grads) > recorded.results else None
        with no_autocast(given[0]):
            found = _run_gradient(recorded, composed, grads[: recorded.results], acc, operands)
            of_z, *of_operands = (
                None if place == _NOTHING else found[place] for place in recorded.places
            )
            grad_z = add(of_z, of_acc)
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
    recorded: Recorded,
    composed: bool,
    grads: tuple[Tensor | None, ...],
    acc: Tensor | None,
    operands: list[Tensor | None],
) -> list[Tensor | None]:
    """The outputs of the gradient's program, if it has any. Where they are to be `composed`, they
    are PyTorch's ops, which it differentiates again."""
    given = next((grad for grad in grads if grad is not None), None)
    if given is None or not recorded.gradient_out:
        return [None] * len(recorded.places)
    grads = tuple(torch.zeros_like(given) if grad is None else grad for grad in grads)
    tensors = [acc, *operands, *grads]
    read = [tensors[index] for index in recorded.reads]
    if not composed:
        arguments = (grads[0], read, recorded.gradient, recorded.gradient_out)
        return _apply_program_op(*arguments)
    wide = torch.float64 if given.dtype == torch.float64 else torch.float32
    found = run(parse(recorded.gradient), grads[0].to(wide), [each.to(wide) for each in read])
    return [each.expand_as(given) for each in found]
