"""The switch of PyTorch's fp32 products, where a graph would compute them past PyTorch's ops.

Elsewhere they are calls of these ops when the graph runs, which the switch serves then.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..matmul import _by_pytorch, _left, _state
from . import Change, Compilation
from ._arguments import name_arguments
from ._sums import SERVED_IN_GRAPHS
from ._unknown import serve_unknown

# Those on a GPU alone. Tests have them on a CPU.
DEVICES = {"cuda"}

_OPS = {
    getattr(torch.ops.aten, name).default: name
    for name in SERVED_IN_GRAPHS
    if "." not in name and not name.endswith("_")
}


def find_change(graph: torch.fx.GraphModule, compilation: Compilation) -> Change | None:
    """Replaces products, while the switch is on."""
    word = compilation.word
    if word is None or not compilation.skips_dispatcher:
        return None
    return Change(("fp32_matmul", word), functools.partial(replace_products, word=word))


def replace_products(
    graph: torch.fx.Graph, word: str, is_chosen: Callable[[torch.fx.Node], bool] | None = None
) -> None:
    """Calls of our ops in place of the products of this graph that the switch serves.

    is_chosen: says of each whether it is to be replaced. None: all are.
    """
    for node in list(graph.nodes):
        is_product = node.op == "call_function" and node.target in _OPS
        if is_product and (is_chosen is None or is_chosen(node)):
            _replace(node, word)


UNTOLD = "dtype and shape are not told behind a pass of yours"


class _Left(Exception):
    """The reason why a product is left to PyTorch."""


def _replace(node: torch.fx.Node, word: str) -> None:
    name, report = _OPS[node.target], _state.report
    options = name_arguments(node)
    tensors = [each.name for each in node.target._schema.arguments if _is_tensor(each)]
    nodes = [options.pop(tensor) for tensor in tensors]
    values = [each.meta.get("val") for each in nodes]
    if not all(isinstance(value, FakeTensor) for value in values):
        # Behind a pass of the user's that calls what Inductor itself cannot tell a result of.
        if report is not None:
            known = [value for value in values if isinstance(value, Tensor)]
            report.count_compiled(name, known, UNTOLD)
        return
    if values[0].device.type not in DEVICES:
        return
    try:
        with values[0].fake_mode:
            replacement = _trace(name, word, values, options)
    except _Left as left:
        if report is not None:
            report.count_compiled(name, values, str(left))
        return
    if report is not None:
        report.count_compiled(name, values, None)
    graph = node.graph
    placeholders = [each for each in replacement.nodes if each.op == "placeholder"]
    with graph.inserting_before(node):
        copied = dict(zip(placeholders, nodes, strict=True))
        y = graph.graph_copy(replacement, copied)
    for each in copied.values():
        if isinstance(each, torch.fx.Node) and each not in nodes:
            # What Inductor says of a kernel: which lines of the user's it comes from.
            for key in ("stack_trace", "nn_module_stack", "original_aten", "seq_nr"):
                if key in node.meta:
                    each.meta.setdefault(key, node.meta[key])
    node.replace_all_uses_with(y)
    graph.erase_node(node)


def _is_tensor(argument: torch.Argument) -> bool:
    return isinstance(argument.type, torch.TensorType)


def _trace(name: str, word: str, values: list[Tensor], options: dict) -> torch.fx.Graph:
    """The graph of what the switch does with these operands, in words of Inductor's."""
    try:
        return _trace_served(SERVED_IN_GRAPHS[name], word, values, options)
    except GuardOnDataDependentSymNode:
        # Nobody knows the sizes before the graph runs.
        pass
    serve = functools.partial(serve_unknown, name)
    try:
        return _trace_served(serve, word, values, options)
    except GuardOnDataDependentSymNode:
        raise _Left(_left.UNKNOWN) from None


def _trace_served(
    served: Callable, word: str, values: list[Tensor], options: dict
) -> torch.fx.Graph:
    from torch._inductor.decomposition import select_decomp_table

    def serve(*operands: Tensor) -> Tensor:
        if operands[0].dtype is not _left.FLOAT32:
            raise _Left(_left.OTHER_DTYPE)
        y = served(word, *operands, **options)
        if y.__class__ is str:
            raise _Left(y)
        return y

    # Some of it is in place, which a graph is not at this point.
    functional = torch.func.functionalize(serve, remove="mutations")
    # A graph holds our ops: what it leaves to PyTorch may become a Triton template.
    with torch.no_grad(), enable_python_dispatcher(), _by_pytorch.never():
        traced = make_fx(functional, select_decomp_table())(*values)
    traced.graph.eliminate_dead_code()
    return traced.graph
