"""The products of a graph that are linear layers."""

import dataclasses
import operator

import torch
from torch.fx import Node
from torch.nn import functional as F

from ...nn._parts import has_hooks, has_plain_forward, is_foreign
from .chains import is_barrier

_MATMULS = {torch.matmul, torch.mm, operator.matmul}
_MATMUL_METHODS = {"matmul", "mm", "__matmul__"}
_ADDS = {operator.add, operator.iadd, torch.add}
_ADD_METHODS = {"add", "add_"}
_TRANSPOSES = {torch.t, torch.transpose}


@dataclasses.dataclass
class Product:
    """z = x @ weight.T + bias, computed by `nodes`, of which the last gives z.

    weight, bias: nodes that give them; None where `module`, a torch.nn.Linear, holds them.
    is_transposed: whether the node gives (K, N).
    takes_matrices: whether it refuses an x of other than two dimensions.
    """

    nodes: tuple[Node, ...]
    x: Node
    module: torch.nn.Module | None = None
    weight: Node | None = None
    bias: Node | None = None
    is_transposed: bool = False
    takes_matrices: bool = False

    @property
    def adds(self) -> bool:
        """Whether an op of its own adds the bias, with the dtype that both have together."""
        return len(self.nodes) > 1

    @property
    def output(self) -> Node:
        return self.nodes[-1]

    @property
    def name(self) -> str:
        if self.module is not None:
            return "Linear"
        return getattr(self.nodes[0].target, "__name__", str(self.nodes[0].target))

    def find_weight(self) -> torch.Tensor | None:
        """As it is now, where that is known."""
        if self.module is not None:
            return self.module._parameters.get("weight")
        weight = read_attribute(self.weight)
        return weight.t() if self.is_transposed and weight is not None else weight


def find_product(node: Node) -> Product | str | None:
    """A product; None where the node is none, a reason where it is one that stays."""
    if node.op == "call_module":
        module = node.meta["module"]
        if not isinstance(module, torch.nn.Linear):
            return None
        if reason := find_reason(module):
            return reason
        if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], Node):
            return "it is called with other arguments than one"
        return Product((node,), node.args[0], module)
    if node.op == "call_function":
        if node.target is F.linear:
            return _take_linear(node)
        if node.target is torch.addmm:
            return _take_addmm(node, *_bind(node, ("input", "mat1", "mat2")))
        if node.target in _MATMULS:
            return _take_matmul(node)
    if node.op == "call_method":
        if node.target in _MATMUL_METHODS:
            return _take_matmul(node)
        if node.target == "addmm":
            return _take_addmm(node, *_bind(node, ("input", "mat1", "mat2")))
    return None


def find_reason(linear: torch.nn.Module) -> str | None:
    """Why a Linear is called as it is."""
    if not has_plain_forward(linear, torch.nn.Linear):
        from ..forward import FusedForward

        if not isinstance(linear.__dict__.get("forward"), FusedForward):
            return f"{type(linear).__name__} has a forward of its own"
        if type(linear).forward is not torch.nn.Linear.forward:
            return f"{type(linear).__name__} has a forward of its own"
    if has_hooks(linear):
        return "it has hooks"
    if "weight" not in linear._parameters or "bias" not in linear._parameters:
        return "its weight is computed, as by a parametrization"
    if is_foreign(linear._parameters["weight"]):
        return "its weight is a tensor of another library's making"
    return None


def read_attribute(node: Node | None) -> torch.Tensor | None:
    """The tensor that a node reads of a module."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    value = node.meta["place"].get(node.meta["name"])
    return value if isinstance(value, torch.Tensor) else None


def _bind(node: Node, names: tuple[str, ...]) -> tuple:
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    extra = set(given) - set(names) or len(node.args) > len(names)
    return (*(given.get(name) for name in names), bool(extra))


def _take_linear(node: Node) -> Product | str:
    x, weight, bias, extra = _bind(node, ("input", "weight", "bias"))
    if extra or not isinstance(x, Node) or not isinstance(weight, Node):
        return "it is called with other arguments than nodes"
    if not isinstance(bias, (Node, type(None))):
        return "its bias is no tensor"
    return Product((node,), x, None, weight, bias)


def _take_addmm(node: Node, bias, x, weight, extra) -> Product | str | None:
    if not all(isinstance(each, Node) for each in (bias, x, weight)):
        return None
    found = _find_weight(weight)
    if found is None:
        return "its second matrix is no parameter"
    if extra:
        return "it scales its parts by beta or alpha"
    value = read_attribute(bias)
    if value is None or value.dim() != 1:
        return "what it adds is no row of parameters"
    return Product((node,), x, None, found[0], bias, found[1], True)


def _take_matmul(node: Node) -> Product | str | None:
    if len(node.args) != 2 or node.kwargs or not all(isinstance(a, Node) for a in node.args):
        return None
    x, second = node.args
    found = _find_weight(second)
    if found is None:
        return None  # a product of two results is no linear layer
    takes_matrices = node.target in (torch.mm, "mm")
    product = Product((node,), x, None, found[0], None, found[1], takes_matrices)
    users = list(node.users)
    if len(users) == 1 and _is_add(users[0]) and not _has_barrier(node, users[0]):
        (other,) = [each for each in users[0].args if each is not node] or (None,)
        value, weight = read_attribute(other), product.find_weight()
        if value is not None and weight is not None and value.shape == weight.shape[:1]:
            product.nodes, product.bias = (node, users[0]), other
    return product


def _is_add(node: Node) -> bool:
    is_one = node.op == "call_function" and node.target in _ADDS
    is_one |= node.op == "call_method" and node.target in _ADD_METHODS
    return is_one and len(node.args) == 2 and not node.kwargs


def _has_barrier(node: Node, add: Node) -> bool:
    """Whether something between them may write to what the product reads."""
    while (node := node.next) is not add:
        if is_barrier(node):
            return True
    return False


def _find_weight(node: Node) -> tuple[Node, bool] | None:
    """The parameter behind a second matrix (K, N), and whether it is that, or its transpose."""
    is_transposed = True
    while is_transpose(node):
        node, is_transposed = node.args[0], not is_transposed
    value = read_attribute(node)
    return None if value is None or value.dim() != 2 else (node, is_transposed)


def is_transpose(node: Node) -> bool:
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in ("T", "mT")
    is_one = node.op == "call_function" and node.target in _TRANSPOSES
    is_one |= node.op == "call_method" and node.target in ("t", "transpose")
    dims = tuple(node.args[1:])
    return is_one and not node.kwargs and dims in ((), (0, 1), (1, 0), (-1, -2), (-2, -1))
