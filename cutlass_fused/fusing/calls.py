"""The fused call of a region: the function that computes it, found by what the nodes say.

Each call takes (x, weight, bias, split, operands, out_dtype). `operands` are the values of the
region's inputs, then the parameters that modules in it hold.
"""

import numbers
import operator
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional as F

from .. import functional
from ..functional._linear_batch_norm import LinearBatchNorm
from ..functional._linear_batch_norm_scale_softmax import _FUNCTION as _SOFTMAX
from ..functional._linear_scale_batch_norm import _FUNCTION as _NORMED
from ..nn._activations import _find_name
from ..nn._parts import collect_statistics
from .direct import (
    make_batch_norm,
    make_composed,
    make_leaky_relu,
    make_linear,
    make_program,
    make_trained_leaky_relu,
)
from .recorded.chains import find_name, is_batch_norm
from .recorded.functions import Functions
from .recorded.regions import Region

_MULTIPLIES = {operator.mul, operator.imul, torch.mul, torch.multiply}
_MULTIPLY_METHODS = {"mul", "mul_", "multiply", "multiply_"}
# Functions that a name says all of, where they are called with one argument.
_NAMES = {
    **dict.fromkeys((F.relu, torch.relu, "relu", "relu_"), "relu"),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"), "sigmoid"),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh", "tanh_"), "tanh"),
    **{F.gelu: "gelu", F.silu: "silu", F.mish: "mish", F.hardswish: "hardswish"},
    **{F.softplus: "softplus", F.elu: "elu", F.leaky_relu: "leaky_relu"},
}


def _find_nothing(x, weight, bias, operands, out_dtype) -> None:
    return None


def _is_never(x, weight, bias, operands, out_dtype) -> bool:
    return False


class Call(NamedTuple):
    """function: the name of what is called, for the report.
    norm: the batch norm whose statistics it moves or reads.
    takes_dtype: whether it must be told the dtype of the result.
    find_direct: of `direct`.
    is_composed: whether such a call, which has run, has gradients by PyTorch's ops alone.
    """

    function: str
    run: Callable
    norm: nn.Module | None = None
    takes_dtype: bool = False
    find_direct: Callable = _find_nothing
    is_composed: Callable = _is_never


def find_call(region: Region, functions: Functions, precision: str | None, uses_batch: bool):
    """The Call; None where no function computes this region. Raises RuntimeError where the chain
    is none of elements and rows."""
    nodes = region.nodes
    if not nodes:
        return _make_linear(precision)
    found = _find_scale_leaky_relu(region, precision) or _find_batch_norm(region, precision)
    if found is not None:
        return found
    if uses_batch:
        return None
    return _find_named(region, precision) or _make_program(region, functions, precision)


def _make_linear(precision) -> Call:
    linear = functional.linear

    def run(x, weight, bias, split, operands, out_dtype):
        return functional.linear(x, weight, bias, precision=precision, weight_split=split)

    return Call(linear.__name__, run, find_direct=make_linear(precision))


def _find_scale_leaky_relu(region: Region, precision) -> Call | None:
    if len(region.nodes) != 2:
        return None
    first, second = region.nodes
    scale, slope = _find_scale(first, region.product.output, region), _find_slope(second, first)
    if scale is None or slope is None:
        return None

    def run(x, weight, bias, split, operands, out_dtype):
        factor = scale if type(scale) is float else operands[scale]
        return functional.linear_scale_leaky_relu(
            x, weight, bias, factor, slope, precision=precision, weight_split=split
        )

    is_number = type(scale) is float
    make = make_leaky_relu if is_number else make_trained_leaky_relu
    find_direct = make(scale, slope, precision)
    return Call("linear_scale_leaky_relu", run, find_direct=find_direct)


def _find_batch_norm(region: Region, precision) -> Call | None:
    """[scale] batch norm, or batch norm [scale] softmax."""
    nodes, value, before, after = list(region.nodes), region.product.output, None, None
    if not any(map(is_batch_norm, nodes)):
        return None
    if not is_batch_norm(nodes[0]):
        before = _find_scale(nodes[0], value, region)
        if before is None:
            return None
        value = nodes.pop(0)
    if not is_batch_norm(nodes[0]) or nodes[0].args[0] is not value:
        return None
    norm = nodes[0].meta["module"]
    value = nodes.pop(0)
    if nodes and before is None:
        if len(nodes) == 2:
            after = _find_scale(nodes[0], value, region)
            if after is None:
                return None
            value = nodes.pop(0)
        if not _is_softmax(nodes[0], value) or len(nodes) > 1:
            return None
        return _make_softmax(norm, after, precision)
    if nodes:
        return None

    def run(x, weight, bias, split, operands, out_dtype):
        return functional.linear_scale_batch_norm(
            x,
            weight,
            bias,
            before if type(before) is not int else operands[before],
            **collect_statistics(norm),
            precision=precision,
            weight_split=split,
        )

    find_direct = _make_direct(_NORMED, norm, before, precision)
    return Call("linear_scale_batch_norm", run, norm, find_direct=find_direct)


def _make_softmax(norm, scale, precision) -> Call:
    def run(x, weight, bias, split, operands, out_dtype):
        return functional.linear_batch_norm_scale_softmax(
            x,
            weight,
            bias,
            scale if type(scale) is not int else operands[scale],
            **collect_statistics(norm),
            precision=precision,
            weight_split=split,
        )

    find_direct = _make_direct(_SOFTMAX, norm, scale, precision)
    return Call("linear_batch_norm_scale_softmax", run, norm, find_direct=find_direct)


def _make_direct(function: LinearBatchNorm, norm, scale: float | int | None, precision):
    """A number becomes a tensor first, which the function does."""
    is_number = type(scale) is float
    return _find_nothing if is_number else make_batch_norm(function, norm, scale, precision)


def _find_named(region: Region, precision) -> Call | None:
    if len(region.nodes) != 1:
        return None
    (node,) = region.nodes
    if node.op == "call_module":
        found = _find_name(node.meta["module"])
    else:
        is_alone = len(node.args) == 1 and set(node.kwargs) <= {"inplace"}
        found = (_NAMES[node.target], {}) if is_alone and node.target in _NAMES else None
    if found is None:
        return None
    name, numbers_of = found
    from ..programs.common import common_epilogues

    def collect(bias, operands):
        return numbers_of if bias is None else {"bias": bias, **numbers_of}

    def run(x, weight, bias, split, operands, out_dtype):
        return functional.linear_epilogue(
            x,
            weight,
            name,
            precision=precision,
            out_dtype=out_dtype,
            weight_split=split,
            **collect(bias, operands),
        )

    find_direct = make_program(common_epilogues()[name], (), collect, precision)
    return Call(f"linear_epilogue, {name}", run, takes_dtype=True, find_direct=find_direct)


def _make_program(region: Region, functions: Functions, precision) -> Call:
    from ..programs.epilogue import Epilogue
    from .validate import check_program

    names = functions.names
    functions.epilogue.__name__ = "_".join(map(find_name, region.nodes))
    epilogue = Epilogue(functions.epilogue)
    check_program(epilogue, region, functions)

    def collect(bias, operands):
        given = dict(zip(names, operands, strict=True))
        return given if bias is None else {**given, "bias": bias}

    def run(x, weight, bias, split, operands, out_dtype):
        return epilogue(
            x,
            weight,
            precision=precision,
            out_dtype=out_dtype,
            weight_split=split,
            **collect(bias, operands),
        )

    asks = epilogue, names, collect, precision
    return Call(
        "linear_epilogue, a program",
        run,
        takes_dtype=True,
        find_direct=make_program(*asks),
        is_composed=make_composed(*asks),
    )


def _find_scale(node: Node, value: Node, region: Region) -> float | int | None:
    """What the node multiplies `value` by: a number as a float, or the index of an input."""
    is_one = node.op == "call_function" and node.target in _MULTIPLIES
    is_one |= node.op == "call_method" and node.target in _MULTIPLY_METHODS
    if not is_one or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if first is value and second is value:
        return None
    if first is not value and second is not value:
        return None
    other = second if first is value else first
    if isinstance(other, Node):
        return region.inputs.index(other) if other in region.inputs else None
    is_number = isinstance(other, numbers.Real) and not isinstance(other, bool)
    return float(other) if is_number else None


def _find_slope(node: Node, value: Node) -> float | None:
    if not node.args or node.args[0] is not value:
        return None
    if node.op == "call_module":
        module = node.meta["module"]
        return float(module.negative_slope) if type(module) is nn.LeakyReLU else None
    if node.target is not F.leaky_relu:
        return None
    given = dict(zip(("input", "slope"), node.args, strict=False)) | node.kwargs
    slope = given.get("slope", given.get("negative_slope", 0.01))
    return float(slope) if isinstance(slope, numbers.Real) and len(node.args) < 3 else None


def _is_softmax(node: Node, value: Node) -> bool:
    """Along the columns of a matrix."""
    if not node.args or node.args[0] is not value:
        return False
    if node.op == "call_module":
        module = node.meta["module"]
        return type(module) is nn.Softmax and module.dim in (1, -1)
    is_one = node.target in (F.softmax, torch.softmax) and node.op == "call_function"
    is_one |= node.op == "call_method" and node.target == "softmax"
    dim = node.args[1] if len(node.args) == 2 else node.kwargs.get("dim")
    return is_one and len(node.args) <= 2 and set(node.kwargs) <= {"dim"} and dim in (1, -1)
