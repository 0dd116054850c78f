"""What stands behind a product of a graph, as far as a program can have it."""

import operator
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...programs.program import Acc
from ...programs.tracing.builder import Known
from ._operands import Operands
from ._ops import ALONG_ROWS, CONVERSIONS, EXPAND, FLOATS, POINTWISE, VIEWS, is_mutable
from ._product import Product
from .forms.match import match
from .forms.recompose import Recomposer

# (..., N), (..., 1) and (...)
FULL, COLUMN, LEADING = "full", "column", "leading"
# Nodes behind the last of a chain in which its next is looked for: what else a layer has.
_FAR = 100
# Longer rows do not fit into the registers of the kernel that has them (docs/row_functions.md).
_MOST_COLUMNS = 32768


class Ends(Exception):
    """This node is none of the chain."""


class Member(NamedTuple):
    """value: what stands for the node; a tuple of such where it gives one.
    leading: sizes of its leading dimensions, as nodes or numbers; one may be -1.
    """

    value: Known | tuple
    kind: str
    leading: tuple


class Chain:
    """members: nodes in their order, the product first, and what stands for them."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.builder = Recomposer()
        self.operands = Operands(self.builder, product)
        self.members: dict[fx.Node, Member] = {}
        # Truths that are x > 0 -> what is above 0 there too, and nowhere else.
        self.same_signs: dict[fx.Node, fx.Node] = {}
        self._others: set[fx.Node] = set()  # which depend on members, and are none
        self._take_product()
        self._grow()

    def _take_product(self) -> None:
        product, b = self.product, self.builder
        value = Acc()
        try:
            if product.alpha != 1.0:
                value = b.add("mul", value, product.alpha)
            if product.c is not None:
                c = self.operands.take(product.c, product.value.shape)
                value = b.add("add", value, b.add("mul", c, product.beta))
        except ValueError:
            return
        self.members[product.node] = Member(value, FULL, (-1,))

    def _grow(self) -> None:
        last = 0
        if not self.members:
            return
        for distance, node in enumerate(_list_behind(self.product.node)):
            inputs = node.all_input_nodes
            if is_mutable(node) or node.op == "output" or distance > last + _FAR:
                break
            if not any(each in self.members or each in self._others for each in inputs):
                continue
            member = None
            if not any(each in self._others for each in inputs):
                member = self._join(node)
            if member is None:
                self._others.add(node)
            else:
                self.members[node] = member
                self._note_sign(node, member)
                last = distance

    def _note_sign(self, node: fx.Node, member: Member) -> None:
        """What a LeakyReLU saves for its gradient is told by its result as well."""
        found = match(self.builder.lines, ("leaky_relu", "x", "S"), member.value)
        if found is None or found["S"] < 0:
            return
        for other, truth in self.members.items():
            if match(self.builder.lines, ("gt", "x", 0.0), truth.value, {"x": found["x"]}):
                self.same_signs[other] = node

    def _join(self, node: fx.Node) -> Member | None:
        if node.op != "call_function":
            return None
        try:
            if node.target is operator.getitem:
                return self._pick(node)
            if node.target in ALONG_ROWS:
                return self._join_of_rows(node)
            self._check(node.meta.get("val"))
            if node.target in CONVERSIONS:
                return self._convert(node)
            if node.target in VIEWS or node.target is EXPAND:
                return self._view(node)
            if node.target in POINTWISE:
                return self._compute(node)
        except (Ends, ValueError):
            pass
        return None

    def _check(self, value) -> None:
        if not isinstance(value, Tensor) or value.dtype not in (*FLOATS, torch.bool):
            raise Ends
        if value.device != self.product.value.device:
            raise Ends

    def _pick(self, node: fx.Node) -> Member:
        member = self.members[node.args[0]]
        value = member.value[node.args[1]] if isinstance(member.value, tuple) else None
        if value is None:
            raise Ends
        self._check(node.meta.get("val"))
        return member._replace(value=value)

    def _convert(self, node: fx.Node) -> Member:
        member = self._one(node)
        is_truth = self.builder.is_truth(member.value)
        value = member.value
        if node.meta["val"].dtype == torch.bool:
            value = value if is_truth else self.builder.add("ne", value, 0.0)
        elif is_truth:
            value = self.builder.add("float", value)
        return member._replace(value=value)

    def _one(self, node: fx.Node) -> Member:
        member = self.members.get(node.args[0])
        if member is None or isinstance(member.value, tuple):
            raise Ends
        return member

    def _view(self, node: fx.Node) -> Member:
        """Of the same elements, each beside the same ones in its row."""
        member, old = self._one(node), node.args[0].meta["val"].shape
        new = node.meta["val"].shape
        if node.target is EXPAND:
            is_row = member.kind == COLUMN and is_same(new[-1], self.product.n)
            if are_same(old, new):
                return member
            if is_row and are_same(old[:-1], new[:-1]):
                return member._replace(kind=FULL)
            raise Ends
        if are_same(old, new):
            return member
        last = {FULL: self.product.n, COLUMN: 1}.get(member.kind)
        if last is not None and len(new) >= 2 and is_same(new[-1], last):
            return member._replace(leading=self._read_leading(node, member))
        if member.kind == COLUMN and are_same(old[:-1], new):
            return member._replace(kind=LEADING)
        if member.kind == LEADING and are_same((*old, 1), new):
            return member._replace(kind=COLUMN)
        raise Ends

    def _read_leading(self, node: fx.Node, member: Member) -> tuple:
        if node.target in (torch.ops.aten.alias.default, torch.ops.aten.clone.default):
            return member.leading
        shape = node.meta["val"].shape[:-1]
        known = tuple(size if isinstance(size, int) else -1 for size in shape)
        if known.count(-1) <= 1:
            return known
        sizes = node.args[1] if len(node.args) > 1 else None
        if not isinstance(sizes, (list, tuple)) or len(sizes) != len(shape) + 1:
            raise Ends
        return tuple(sizes[:-1])

    def _compute(self, node: fx.Node) -> Member:
        shape = node.meta["val"].shape
        members = [self.members[each] for each in node.all_input_nodes if each in self.members]
        kind = self._find_kind(node, shape)
        given = [self._take(each, shape, kind) for each in node.args]
        named = {name: self._take(each, shape, kind) for name, each in node.kwargs.items()}
        try:
            value = POINTWISE[node.target](self.builder, *given, **named)
        except (TypeError, AttributeError):  # an option that the rule does not know
            raise Ends from None
        if value is None or isinstance(value, tuple):
            raise Ends
        leading = next((each.leading for each in members if len(each.leading) > 1), (-1,))
        is_truth = self.builder.is_truth(value)
        if is_truth != (node.meta["val"].dtype == torch.bool):
            raise Ends
        return Member(value, kind, leading)

    def _find_kind(self, node: fx.Node, shape) -> str:
        """Of what is computed of members, which broadcast as in PyTorch."""
        kinds = set()
        for each in node.all_input_nodes:
            member = self.members.get(each)
            if member is None:
                continue
            if isinstance(member.value, tuple):
                raise Ends
            old = each.meta["val"].shape
            if are_same(old, shape):
                kinds.add(member.kind)
            elif member.kind == COLUMN and are_same(old, (*shape[:-1], 1)):
                if not is_same(shape[-1], self.product.n):
                    raise Ends
                kinds.add(FULL)
            else:
                raise Ends
        if len(kinds) != 1:
            raise Ends
        return kinds.pop()

    def _take(self, given, shape, kind: str):
        if isinstance(given, bool) or given is None or isinstance(given, (str, torch.dtype)):
            return given
        if isinstance(given, (int, float)):
            return float(given)
        if not isinstance(given, fx.Node):
            raise Ends
        if given in self.members:
            return self.members[given].value
        if given in self._others:
            raise Ends
        if kind == COLUMN:
            shape = (*shape[:-1], self.product.n)
        return self.operands.take(given, shape, kind == LEADING)

    def _join_of_rows(self, node: fx.Node) -> Member:
        member = self._one(node)
        x = node.args[0].meta["val"]
        schema = node.target._schema
        names = [argument.name for argument in schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        dims = given.pop("dim", None)
        dims = [dims] if isinstance(dims, int) else dims
        if member.kind != FULL or not dims or {dim % x.dim() for dim in dims} != {x.dim() - 1}:
            raise Ends
        if given.pop("dtype", None) not in (None, torch.float32) or x.dtype not in FLOATS:
            raise Ends
        if self.product.n > _MOST_COLUMNS:
            raise Ends
        keeps = given.pop("keepdim", names[-1] == "keepdim" and schema.arguments[-1].default_value)
        options = {name: each for name, each in given.items() if name == "correction"}
        x = member.value
        value = ALONG_ROWS[node.target](self.builder, x, self.product.n, **options)
        return Member(value, COLUMN if keeps else LEADING, member.leading)


def _list_behind(node: fx.Node) -> Iterator[fx.Node]:
    root = node.graph._root
    node = node.next
    while node is not root:
        yield node
        node = node.next


def is_same(a, b) -> bool:
    return statically_known_true(a == b)


def are_same(a, b) -> bool:
    return len(a) == len(b) and all(map(is_same, a, b))
