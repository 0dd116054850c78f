"""Where a chain ends: behind which of its nodes the program's results are."""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...programs.operands import COLUMN as OPERAND_COLUMN
from ...programs.operands import ROW, SCALAR, TILE
from ...programs.program import (
    MOST_OUTPUTS,
    Acc,
    Operand,
    Program,
    Value,
    check_size,
    keep_operands,
)
from ...programs.words import ALL_WORDS, BOOL, ROW_WORDS
from ._chain import FULL, Chain
from ._ops import FLOATS, is_inlined, is_stored
from .forms.fold import Source, fold_rows
from .forms.named import find_named

# What a kernel has room for beside its product: docs/epilogues.md.
_ROOM = {TILE: 2, OPERAND_COLUMN: 2, ROW: 4, SCALAR: 4}
_MOST_RESULTS = 3


class Cut(NamedTuple):
    """members: of the chain, up to its end. outputs: nodes that each result stands for, which are
    all the same. operands: what the program reads. is_within: it is part of the product's kernel,
    and not one behind that. named: of `forms.named`.
    """

    members: frozenset[fx.Node]
    program: Program
    outputs: tuple[tuple[fx.Node, ...], ...]
    operands: tuple[Source, ...]
    is_within: bool
    named: tuple[torch._ops.OpOverload, list] | None


def find_cut(chain: Chain, must_be_within: bool) -> Cut | None:
    """The longest of those that leave the least to be written and read.

    A result that something else wants in memory is written in any case. One that only kernels of
    Inductor's read is written and read for the cut's sake alone, as is the product in front of a
    kernel of its own.
    """
    order = list(chain.members)
    best, least = None, None
    for end in range(len(order), 0, -1):
        members = _drop_truths(order[:end])
        outputs = _list_outputs(chain, members)
        cost = sum(_weigh(chain, nodes, members) for nodes in outputs)
        if least is not None and cost >= least:
            continue
        cut = _make(chain, members, outputs)
        if cut is None or (must_be_within and not cut.is_within):
            continue
        cost += 0 if cut.is_within else 2 * torch.float32.itemsize
        if least is None or cost < least:
            best, least = cut, cost
    return best


def _drop_truths(order: list[fx.Node]) -> set[fx.Node]:
    """Without those that no member reads: a result is no truth, and Inductor finds it of others."""
    members = set(order)
    for node in reversed(order):
        is_truth = getattr(node.meta["val"], "dtype", None) == torch.bool
        if is_truth and not any(user in members for user in node.users):
            members.remove(node)
    return members


def _list_outputs(chain: Chain, members: set[fx.Node]) -> list[tuple[fx.Node, ...]]:
    """What something behind them reads; together those that are computed twice."""
    found: dict[tuple, list[fx.Node]] = {}
    for node, member in chain.members.items():
        if node in members and _is_read(chain, node, members):
            dtype = getattr(node.meta["val"], "dtype", None)
            value = member.value.hex() if isinstance(member.value, float) else member.value
            found.setdefault((value, member.kind, dtype), []).append(node)
    return list(map(tuple, found.values()))


def _is_read(chain: Chain, node: fx.Node, members: set[fx.Node]) -> bool:
    if any(user not in members for user in node.users):
        return chain.same_signs.get(node) not in members
    # Of which a truth is found that something behind the members reads.
    truths = [each for each, other in chain.same_signs.items() if other is node]
    return any(user not in members for each in truths for user in each.users)


def _weigh(chain: Chain, nodes: tuple[fx.Node, ...], members: set[fx.Node]) -> int:
    """Bytes for each element."""
    if chain.members[nodes[0]].kind != FULL or not _can_be_written(nodes[0]):
        return 0
    users = [user for node in nodes for user in node.users if user not in members]
    is_inlined_here = any(map(is_inlined, users)) or not users  # a truth is found of it
    times = int(not any(map(is_stored, nodes))) + int(is_inlined_here)
    return nodes[0].meta["val"].dtype.itemsize * times


def _make(chain: Chain, members: set[fx.Node], outputs: list[tuple[fx.Node, ...]]) -> Cut | None:
    if not outputs or len(outputs) > MOST_OUTPUTS:
        return None
    if not all(_can_be_written(node) for nodes in outputs for node in nodes):
        return None
    found = [chain.members[nodes[0]] for nodes in outputs]
    if any(isinstance(each.value, tuple) for each in found):
        return None
    nodes, n = chain.operands.nodes, chain.product.n
    widths = tuple(1 if each.kind == FULL else n for each in found)
    program = chain.builder.finish(len(nodes), [each.value for each in found], n, widths)
    if not any(line.word in ROW_WORDS for line in program.lines):
        if program.widths:
            return None
        program = dataclasses.replace(program, columns=0)
    given = _keep(program, nodes, chain.operands.kinds)
    named = find_named(*given, outputs[0][0].meta["val"].dtype, chain.product.value.dtype)
    if named is None:
        given = _keep(*fold_rows(program, nodes, chain.operands.kinds, _ROOM[ROW]))
    program, sources, kinds = given
    try:
        check_size(program)
    except ValueError:
        return None
    if not program.columns:
        program, outputs = _put_nan_first(program, outputs)
    is_within = _has_room(program, kinds)
    if chain.product.value.dtype == torch.float32:
        is_within = is_within and _list_nan(program)[0]
    is_within = is_within or named is not None
    found = program, tuple(outputs), tuple(sources), is_within, named
    return Cut(frozenset(members), *found)


def _keep(
    program: Program, sources: list[Source], kinds: list[str]
) -> tuple[Program, list[Source], list[str]]:
    """With what it reads alone."""
    kept = sorted(each.index for each in program.reads if isinstance(each, Operand))
    program = keep_operands(program, kept)
    return program, [sources[index] for index in kept], [kinds[index] for index in kept]


def _has_room(program: Program, kinds: list[str]) -> bool:
    is_small = all(kinds.count(kind) <= room for kind, room in _ROOM.items())
    return is_small and not program.columns and len(program.outputs) <= _MOST_RESULTS


def _put_nan_first(program: Program, outputs: list[fx.Node]) -> tuple[Program, list[fx.Node]]:
    """A product of split rows is repaired where the first result is NaN."""
    has_nan = _list_nan(program)
    if has_nan[0] or True not in has_nan:
        return program, outputs
    order = sorted(range(len(outputs)), key=lambda index: index != has_nan.index(True))
    results = tuple(program.outputs[index] for index in order)
    return dataclasses.replace(program, outputs=results), [outputs[index] for index in order]


def _list_nan(program: Program) -> list[bool]:
    """Of each result, whether it is NaN wherever acc is: include/cutlass_fused/program says the
    same (propagates_nan.hpp)."""
    lines: list[bool] = []

    def is_nan(argument) -> bool:
        is_line = isinstance(argument, Value)
        return lines[argument.index] if is_line else isinstance(argument, Acc)

    for line in program.lines:
        found = [is_nan(each) for each in line.arguments]
        if ALL_WORDS[line.word].result == BOOL or line.word in ("sign", "float"):
            lines.append(False)
        elif line.word == "where":
            lines.append(found[1] and found[2])
        elif line.word == "prelu":
            lines.append(found[0])
        elif line.word == "pow":
            exponent = line.arguments[1]
            is_other = isinstance(exponent, float) and exponent != 0.0
            lines.append(found[0] and (found[1] or is_other))
        else:
            lines.append(any(found))
    return [is_nan(each) for each in program.outputs]


def _can_be_written(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype in FLOATS and _is_contiguous(value)


def _is_contiguous(value: Tensor) -> bool:
    """As far as it is known, without a guard."""
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if statically_known_true(size == 1):
            continue
        if not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True
