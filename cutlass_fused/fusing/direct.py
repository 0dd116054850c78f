"""Calls of ops by the shortest way, for sites that have decided.

A function of cutlass_fused.functional asks in each call what its arguments are, and who looks at
it: autocast, a derivative in forward mode, a gradient. A site has seen that of a call of the same
shapes and dtypes, which ran. Each call here is one without gradients and autocast, of plain tensors
on a GPU. What may have changed since, the ops check: devices, shapes, dtypes.
"""

from torch import nn

from .._library import ops
from ..functional._arguments import check_batch_norm, check_rows, float_of, read_momentum
from ..functional._linear_batch_norm import LinearBatchNorm
from ..nn._parts import collect_statistics
from ..precision import resolve_precision
from ..weights.splits import find_split

_linear_scale_leaky_relu = ops.linear_scale_leaky_relu.default


def make_leaky_relu(multiplier: float, slope: float, precision: str | None):
    multiplier, name = float_of(multiplier), "linear_scale_leaky_relu"

    def run(x, weight, bias, split, operands):
        word = resolve_precision(precision, name, weight.dtype)
        if split is None:
            split = find_split(weight, word)
        numbers = (None, multiplier, slope, word, None)
        return _linear_scale_leaky_relu(x, weight, bias, *numbers, split, None)

    return run


def make_batch_norm(
    function: LinearBatchNorm, norm: nn.BatchNorm1d, index: int | None, precision: str | None
):
    """index: of the scale among the operands, which has the dtype of x and shape (N,) or (1,); None:
    there is none."""
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

    return run
