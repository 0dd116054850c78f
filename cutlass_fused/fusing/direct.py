"""Calls of ops by the shortest way, for sites that have decided.

A function of cutlass_fused.functional asks in each call what its arguments are, and who looks at
it: autocast, a derivative in forward mode, a gradient. A site has seen that of a call of the same
shapes and dtypes, which ran. Each call here is one without autocast, of plain tensors on a GPU.
What may have changed since, the ops check: devices, shapes, dtypes.

Each `make_...` gives find(x, weight, bias, operands, out_dtype), to be called behind such a call,
which gives run(x, weight, bias, split, operands), or None where the function is to be called.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from .._library import ops
from ..functional._arguments import (
    check_batch_norm,
    check_rows,
    float_of,
    read_momentum,
    take_matrices,
)
from ..functional._linear_batch_norm import LinearBatchNorm
from ..functional._linear_scale_leaky_relu import collect_trained, make_trained
from ..nn._parts import collect_statistics
from ..precision import resolve_precision
from ..weights.splits import find_split

if TYPE_CHECKING:  # tracing takes long to import
    from ..programs.epilogue import Epilogue

_linear = ops.linear.default
_linear_scale_leaky_relu = ops.linear_scale_leaky_relu.default
_linear_epilogue = ops.linear_epilogue.default


def make_linear(precision: str | None) -> Callable:
    def run(x, weight, bias, split, operands):
        word = resolve_precision(precision, "linear", weight.dtype)
        if split is None:
            split = find_split(weight, word)
        return _linear(x, weight, bias, word, None, split, None)

    return _without_gradients(run)


def make_leaky_relu(multiplier: float, slope: float, precision: str | None) -> Callable:
    multiplier, name = float_of(multiplier), "linear_scale_leaky_relu"

    def run(x, weight, bias, split, operands):
        word = resolve_precision(precision, name, weight.dtype)
        if split is None:
            split = find_split(weight, word)
        numbers = (None, multiplier, slope, word, None)
        return _linear_scale_leaky_relu(x, weight, bias, *numbers, split, None)

    return _without_gradients(run)


def make_trained_leaky_relu(index: int, slope: float, precision: str | None) -> Callable:
    """index: of the scale among the operands. Where it is trained the function is a program."""
    names = [*map(str, range(index)), "scale"]

    def collect(bias, operands):
        return collect_trained(operands[index], slope, bias)

    def find(x, weight, bias, operands, out_dtype):
        if not (torch.is_grad_enabled() and operands[index].requires_grad):
            return None
        of_program = make_program(make_trained(), names, collect, precision)
        return of_program(x, weight, bias, operands, out_dtype)

    return find


def make_batch_norm(
    function: LinearBatchNorm, norm: nn.BatchNorm1d, index: int | None, precision: str | None
) -> Callable:
    """index: of the scale among the operands; None: there is none."""
    op, infer, train = function.op, function.inference_op, function.train_op

    def run(x, weight, bias, split, operands):
        scale = None if index is None else operands[index]
        mean, var, gamma, beta, training, momentum, eps, count = collect_statistics(norm).values()
        check_batch_norm(op, mean, var, count, gamma, beta, training, eps)
        word = resolve_precision(precision, op, weight.dtype)
        if split is None:
            split = find_split(weight, word)
        if not training:
            statistics = (mean, var, gamma, beta, eps, word)
            return infer(x, weight, bias, scale, *statistics, weight_split=split)
        check_rows(op, x, weight)
        statistics = (mean, var, count, gamma, beta, read_momentum(op, momentum), eps, word)
        return train(x, weight, bias, scale, *statistics, weight_split=split)[0]

    return _without_gradients(run)


def _without_gradients(run: Callable) -> Callable:
    """Operands of another shape or dtype are converted first, by the function."""

    def find(x, weight, bias, operands, out_dtype):
        if torch.is_grad_enabled():
            return None
        shapes = weight.shape[:1], (1,)
        is_taken = all(each.shape in shapes and each.dtype == x.dtype for each in operands)
        return run if is_taken else None

    return find


def make_program(
    epilogue: "Epilogue", names: Sequence[str], collect: Callable, precision: str | None
) -> Callable:
    """names: of the operands. collect(bias, operands): what the epilogue is called with."""
    from ..programs.seen import describe

    def find(x, weight, bias, operands, out_dtype):
        word = resolve_precision(precision, epilogue.name, weight.dtype)
        call = describe(x, weight, word, out_dtype, collect(bias, operands))
        seen = None if call is None else epilogue.seen.find(call)
        if seen is None or seen.converted or seen.are_rows or seen.is_tuple:
            return None
        places = [-1 if name == "bias" else names.index(name) for name in seen.tensors]
        if seen.recorded is None:
            return _run_program(seen, places, precision)
        return None if seen.native is None else _run_recorded(seen, places, precision)

    return find


def make_composed(
    epilogue: "Epilogue", names: Sequence[str], collect: Callable, precision: str | None
) -> Callable:
    """find(x, weight, bias, operands, out_dtype): whether a call that has run was composed of
    PyTorch's ops, as its gradient is no program. Arguments as of make_program."""
    from ..programs.seen import describe

    def find(x, weight, bias, operands, out_dtype):
        if not torch.is_grad_enabled():
            return False
        # Autocast may take them in another dtype, as the call did.
        x, weight, _, word = take_matrices(epilogue.name, x, weight, None, precision)
        call = describe(x, weight, word, out_dtype, collect(bias, operands))
        return call is not None and epilogue.seen.find(call) is None

    return find


def _run_program(seen, places: list[int], precision: str | None) -> Callable:
    text, out = seen.text, seen.out

    def run(x, weight, bias, split, operands):
        tensors = [bias if place < 0 else operands[place] for place in places]
        word = resolve_precision(precision, "linear_epilogue", weight.dtype)
        if split is None:
            split = find_split(weight, word)
        return _linear_epilogue(x, weight, tensors, text, word, out, split)[0]

    return run


def _run_recorded(seen, places: list[int], precision: str | None) -> Callable:
    from ..programs import native

    call = seen.native

    def run(x, weight, bias, split, operands):
        tensors = [bias if place < 0 else operands[place] for place in places]
        word = resolve_precision(precision, "linear_epilogue", weight.dtype)
        return native.run(x, weight, tensors, call, word, False)

    return run
