"""Epilogues that users write, and the ops under them, with DTensors.

A function of elements is cut by rows, by columns, or by K with the function behind the sum. One
that adds along rows is not cut by columns.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from ..checks import check_matrices, check_rank, name_in_messages
from ..programs.operands import COLUMN, ROW, SCALAR, TILE, find_kind
from ..programs.parse import parse
from ..programs.program import find_sums
from ._layouts import WIDE, Layout, choose, make_whole, sum_up
from ._shards import Shards

# Where in (..., N) an operand has several values: in its rows, in its columns.
_VARIES = {SCALAR: (False, False), ROW: (False, True), COLUMN: (True, False), TILE: (True, True)}


def apply_epilogue(
    op: str,
    x: Tensor,
    weight: Tensor,
    operands: dict[str, Tensor],
    adds_rows: bool,
    run: Callable[..., object],
):
    """What an epilogue gives, differentiably. `operands`: those that are tensors; `adds_rows`:
    whether its function adds along rows; `run`: its results of shards, of (x, weight, operands,
    groups), of which the groups are those over which the product is to be added up."""
    call = _ProgramCall(op, {"x": x, "weight": weight}, operands, adds_rows, may_sum=True)
    shards = call.cut()
    if not call.takes_part():
        return call.wrap_result(call.make_nothing(shards))
    named = {name: shards[_rename(name)] for name in operands}
    results = run(shards["x"], shards["weight"], named, call.find_groups().inner)
    if isinstance(results, tuple):
        return tuple(map(call.wrap_result, results))
    return call.wrap_result(results)


def run_program_op(cls, op, types, args, kwargs):
    """apply_program and linear_epilogue, which PyTorch calls below autograd."""
    names = [argument.name for argument in op._schema.arguments]
    values = {argument.name: argument.default_value for argument in op._schema.arguments}
    values |= dict(zip(names, args, strict=False)) | (kwargs or {})
    if "weight_split" in values:
        values["weight_split"] = None  # it belongs to the weight as a whole
    matrices = {name: values[name] for name in ("acc", "x", "weight") if name in values}
    operands = {str(i): each for i, each in enumerate(values["operands"])}
    name = name_in_messages(op._schema.name.partition("::")[2])
    adds_rows = parse(values["program"]).columns != 0
    with torch.no_grad():
        call = _ProgramCall(name, matrices, operands, adds_rows, may_sum=False)
        shards = call.cut()
        values |= {key: shards[key] for key in matrices}
        values["operands"] = [shards[_rename(key)] for key in operands]
        if not call.takes_part():
            return [call.wrap_result(call.make_nothing(shards))]
        results = op(*(values[key] for key in names))
        sums = find_sums(values["out"] or "")
        sums = sums * len(results) if len(sums) == 1 else sums
        pairs = zip(results, sums, strict=True)
        return [call.wrap_sum(y) if is_sum else call.wrap_result(y) for y, is_sum in pairs]


def _rename(operand: str) -> str:
    """Its name in a call, whose matrices have names too."""
    return f"operand {operand}"


class _ProgramCall(Shards):
    def __init__(
        self,
        op: str,
        matrices: dict[str, Tensor],
        operands: dict[str, Tensor],
        adds_rows: bool,
        may_sum: bool,
    ) -> None:
        named = {_rename(name): operand for name, operand in operands.items()}
        super().__init__(op, matrices | named, set())
        first, *_ = matrices
        self.rows = self.tensors[first]  # whose leading dimensions are those of all results
        check_rank(op, self.rows)
        if "weight" in matrices:
            check_matrices(op, self.rows, self.tensors["weight"], may_mix=True)
        self.n = self.tensors["weight"].shape[0] if "weight" in matrices else self.rows.shape[-1]
        self.varies = {
            name: _VARIES[find_kind(op, name, self.tensors[name], self.rows, self.n)]
            for name in named
        }
        self.first, self.last = first, self.rows.dim() - 1
        layouts = [make_whole(self.tensors, 1), *map(self._cut_rows, range(self.last))]
        if not adds_rows:
            layouts.append(self._cut_columns())
        if may_sum:
            layouts.append(self._cut_inner())
        self.layouts = [choose(layouts, self.tensors, dim) for dim in range(self.mesh.ndim)]

    def _cut_rows(self, row: int) -> Layout:
        inputs = {
            name: Shard(row) if self.varies.get(name, (name == self.first,))[0] else Replicate()
            for name in self.tensors
        }
        return Layout("rows", inputs, (Shard(row),), sum_up(inputs))

    def _cut_columns(self) -> Layout:
        inputs = {
            name: Shard(tensor.dim() - 1)
            if self.varies.get(name, (False, False))[1]
            else Replicate()
            for name, tensor in self.tensors.items()
        }
        if "weight" in self.tensors:
            inputs["weight"] = Shard(0)
        else:
            inputs[self.first] = Shard(self.last)
        return Layout("columns", inputs, (Shard(self.last),), sum_up(inputs))

    def _cut_inner(self) -> Layout:
        inputs = dict.fromkeys(self.tensors, Replicate()) | {"x": Shard(self.last)}
        inputs["weight"] = Shard(1)
        sent = 2 * math.prod(self.rows.shape[:-1]) * self.n * WIDE
        return Layout("sum", inputs, (Replicate(),), inputs, sent)

    def make_nothing(self, shards: dict[str, Tensor]) -> Tensor:
        return sum(shards.values())

    def wrap_result(self, shard: Tensor):
        """(..., N), (..., N / width) or (...,)."""
        shape = list(shard.shape) if self.takes_part() else [*self.rows.shape[:-1], self.n]
        placements = [layout.results[0] for layout in self.layouts]
        for placement in placements:
            if isinstance(placement, Shard):
                dim = placement.dim
                shape[dim] = self.n if dim == self.last else self.rows.shape[dim]
        strides = torch.empty(shape, device="meta").stride()
        return self.wrap(shard, placements, torch.Size(shape), strides)

    def wrap_sum(self, shard: Tensor):
        """The sum over the rows, (N,): where these are cut, each process has a part of it."""

        def place(result: Placement) -> Placement:
            if not isinstance(result, Shard):
                return result
            return Shard(0) if result.dim == self.last else Partial()

        placements = [place(layout.results[0]) for layout in self.layouts]
        return self.wrap(shard, placements, torch.Size([self.n]), (1,))
