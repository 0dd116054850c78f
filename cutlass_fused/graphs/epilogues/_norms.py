"""Batch norm in training behind a product, and a softmax behind that: ops with a name.

They compute the batch's statistics with the product, and move the running ones. A graph says that
by `auto_functionalized`, of which Inductor makes a call in place. In fp32 alone: of 16 bits graphs
keep what the ops do not round as they do.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import fx

from ..._namespace import ops
from ...programs.operands import ROW, SCALAR
from ._make import Maker
from ._operands import find_kind
from ._ops import find_constant
from ._product import Product

_aten = torch.ops.aten
_NORM = ops.linear_scale_batch_norm_train.default
_SOFTMAX = ops.linear_batch_norm_scale_softmax_train.default
_RESULTS = 4  # y, z, mean, rstd; then what is written
_SQUEEZES = (_aten.squeeze.dims, _aten.squeeze.dim, _aten.reshape.default, _aten.view.default)


class _Differs(Exception):
    """The graph is not of this form."""


class Moved(NamedTuple):
    """new = old + momentum * (what the batch has - old)"""

    new: fx.Node
    old: fx.Node
    momentum: float


class Norm(NamedTuple):
    """y = (v - mean) * rstd * gamma + beta, v = z * scale; or softmax(scale * that)."""

    op: torch._ops.OpOverload
    y: fx.Node
    mean: fx.Node
    rstd: fx.Node
    scale: fx.Node | None
    gamma: fx.Node | None
    beta: fx.Node | None
    eps: float
    moved: tuple[Moved, Moved] | None
    keeps_z: bool


def find_norm(product: Product) -> Norm | None:
    is_plain = product.alpha == 1.0 and product.beta == 1.0
    if product.value.dtype != torch.float32 or not is_plain:
        return None
    if product.c is not None and find_kind(product.c.meta["val"], product.value.shape) != ROW:
        return None
    try:
        return _find(product)
    except _Differs:
        return None


def replace_norm(product: Product, norm: Norm, precision: str) -> None:
    graph = product.node.graph
    maker = Maker(graph, product.node, norm.y)
    moved = norm.moved or ()
    vectors = [norm.scale, norm.gamma, norm.beta, product.c, *(each.old for each in moved)]
    reads = {product.node, *filter(None, vectors)}
    last = next(node for node in reversed(graph.nodes) if node in reads)
    with graph.inserting_before(last.next):
        weight = maker.transpose(product.b)
        scale, gamma, beta, bias = (each and maker.flatten_row(each) for each in vectors[:4])
        running = [each.old for each in moved] or [None, None]
        momentum = moved[0].momentum if moved else 0.1
        given = [product.a, weight, bias, scale, *running, None, gamma, beta]
        given += [momentum, norm.eps, precision, None, norm.keeps_z]
        results = maker.call_functionalized(norm.op, given)
        names = norm.y, product.node if norm.keeps_z else None, norm.mean, norm.rstd
        for index, node in enumerate(names):
            if node is None:
                continue
            result = maker.pick(results, index)
            if result.meta["val"].dim() != node.meta["val"].dim():
                result = maker.call(_aten.unsqueeze.default, result, 0)
            node.replace_all_uses_with(result)
        for index, each in enumerate(moved):
            each.new.replace_all_uses_with(maker.pick(results, _RESULTS + index))


def _find(product: Product) -> Norm:
    z = product.node
    v, scale = z, None
    norms = [user for user in z.users if user.target is _aten.var_mean.correction]
    if not norms:
        v = _only(user for user in z.users if user.target is _aten.mul.Tensor)
        scale = _other(v, z)
        _check_kind(scale, product, (ROW, SCALAR))
    statistics = _only(user for user in v.users if user.target is _aten.var_mean.correction)
    is_biased = statistics.kwargs.get("correction") == 0 and statistics.kwargs.get("keepdim")
    if not is_biased or list(statistics.args[1]) != [0]:
        raise _Differs
    var, mean = (_only(u for u in statistics.users if u.args[1] == i) for i in range(2))
    added = _only(user for user in var.users if user.target is _aten.add.Tensor)
    eps = added.args[1]
    if not isinstance(eps, float):
        raise _Differs
    rstd = _only(added.users, _aten.rsqrt.default)
    away = _only(user for user in v.users if user.target is _aten.sub.Tensor)
    if away.args != (v, mean):
        raise _Differs
    y = _only(away.users, _aten.mul.Tensor)
    if _other(y, away) is not rstd:
        raise _Differs
    gamma, beta = None, None
    if (found := _step(y, _aten.mul.Tensor, product, (ROW,))) is not None:
        y, gamma = found
        if (found := _step(y, _aten.add.Tensor, product, (ROW,))) is not None:
            y, beta = found
    moved = _find_moved(product, mean, var, added)
    is_read = any(user not in (statistics, away, v) for user in z.users)
    if v is not z and (is_read or len(v.users) != 2):
        raise _Differs
    norm = Norm(_NORM, y, mean, rstd, scale, gamma, beta, eps, moved, is_read)
    return norm if scale is not None else _find_softmax(norm, product)


def _find_softmax(norm: Norm, product: Product) -> Norm:
    """softmax(scale * y), where nothing else reads y."""
    found = _step(norm.y, _aten.mul.Tensor, product, (ROW, SCALAR))
    if found is None:
        return norm
    scaled, scale = found
    try:
        top = _only(user for user in scaled.users if user.target is _aten.amax.default)
        less = _only(user for user in scaled.users if user.target is _aten.sub.Tensor)
        last = less
        if scale.target is _aten.where.self:
            scale, last = _find_scale_by_sign(scale, less, product)
        power = _only(last.users, _aten.exp.default)
        total = _only(user for user in power.users if user.target is _aten.sum.dim_IntList)
        y = _only(user for user in power.users if user.target is _aten.div.Tensor)
    except _Differs:
        return norm
    is_softmax = less.args == (scaled, top) and y.args == (power, total)
    is_read_alone = len(scaled.users) == len(power.users) == 2
    if not is_softmax or not is_read_alone or not all(map(_is_of_rows, (top, total))):
        return norm
    return norm._replace(op=_SOFTMAX, y=y, scale=scale)


def _find_scale_by_sign(sign: fx.Node, less: fx.Node, product: Product) -> tuple[fx.Node, fx.Node]:
    """Inductor shifts sign * y by its maximum, and multiplies by |scale| = sign * scale then."""
    truth, one, minus_one = sign.args
    is_sign = truth.target is _aten.ge.Scalar and truth.args[1] == 0
    is_one = find_constant(one) == 1.0
    if not is_sign or not is_one or minus_one.target is not _aten.neg.default:
        raise _Differs
    scale = truth.args[0]
    _check_kind(scale, product, (ROW, SCALAR))
    last = _only(less.users, _aten.mul.Tensor)
    size = _other(last, less)
    is_size = size.target is _aten.mul.Tensor and set(size.args) == {sign, scale}
    if minus_one.args[0] is not one or not is_size:
        raise _Differs
    return scale, last


def _is_of_rows(node: fx.Node) -> bool:
    return list(node.args[1]) in ([1], [-1]) and node.args[2:] == (True,)


def _find_moved(
    product: Product, mean: fx.Node, var: fx.Node, added: fx.Node
) -> tuple[Moved, Moved] | None:
    """The running statistics; None where the model has none. `added` reads the variance as well."""
    squeezed = [user for user in var.users if user is not added]
    if not squeezed:
        return None
    m = product.value.shape[0]
    if not isinstance(m, int) or m < 2:
        raise _Differs
    unbiased = _only(_only(squeezed).users, _aten.mul.Tensor)
    if not _is_near(unbiased.args[1], m / (m - 1)):
        raise _Differs
    of_var = _find_step(unbiased)
    found = [each for each in map(_try_step, _squeezed(mean)) if each is not None]
    of_mean = _only(found)
    if of_mean.momentum != of_var.momentum:
        raise _Differs
    return of_mean, of_var


def _squeezed(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if user.target in _SQUEEZES]


def _try_step(node: fx.Node) -> Moved | None:
    try:
        return _find_step(node)
    except _Differs:
        return None


def _find_step(batch: fx.Node) -> Moved:
    part = _only(user for user in batch.users if user.target is _aten.mul.Tensor)
    new = _only(part.users, _aten.add.Tensor)
    rest = _other(new, part)
    momentum = part.args[1]
    is_product = rest.target is _aten.mul.Tensor and isinstance(momentum, float)
    if not is_product or not _is_near(rest.args[1], 1 - momentum):
        raise _Differs
    old = rest.args[0]
    if not isinstance(old, fx.Node) or old.op != "placeholder" or old.meta["val"].dim() != 1:
        raise _Differs
    if old.meta["val"].dtype != torch.float32:
        raise _Differs
    return Moved(new, old, momentum)


def _step(
    node: fx.Node, op: torch._ops.OpOverload, product: Product, kinds: Sequence[str]
) -> tuple[fx.Node, fx.Node] | None:
    """What alone reads it, and the vector that is there beside it."""
    users = list(node.users)
    if len(users) != 1 or users[0].target is not op:
        return None
    try:
        other = _other(users[0], node)
        _check_kind(other, product, kinds)
    except _Differs:
        return None
    return users[0], other


def _check_kind(node: fx.Node, product: Product, kinds: Sequence[str]) -> None:
    value = node.meta.get("val")
    is_tensor = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    if not is_tensor or value.device != product.value.device:
        raise _Differs
    if find_kind(value, product.value.shape) not in kinds:
        raise _Differs


def _other(node: fx.Node, one: fx.Node) -> fx.Node:
    """The other of its two arguments."""
    others = [each for each in node.args if each is not one]
    if len(node.args) != 2 or len(others) != 1 or not isinstance(others[0], fx.Node):
        raise _Differs
    return others[0]


def _only(nodes, op: torch._ops.OpOverload | None = None) -> fx.Node:
    found = list(nodes)
    if len(found) != 1 or (op is not None and found[0].target is not op):
        raise _Differs
    return found[0]


def _is_near(number, expected: float) -> bool:
    return isinstance(number, float) and abs(number - expected) <= 1e-12 * expected
