"""One call with DTensors: how its tensors become shards, and its results DTensors."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from .._namespace import NAMESPACE, ops
from ..checks import (
    check_matrices,
    check_rank,
    check_row_or_scalar,
    check_vector,
    name_in_messages,
)
from ..epilogues import EPILOGUES
from ..epilogues._description import Row
from ..row_ops import ROW_OPS
from ._composed import run_composed, run_train_op
from ._layouts import CUTS, ROWS_OR_SCALARS, choose_layouts
from ._shards import Shards
from ._subscripts import SUBSCRIPTS, run_subscripts

PROGRAMS = ("apply_program", "linear_epilogue")
_VECTORS = dict.fromkeys(("bias", "running_mean", "running_var", "gamma", "beta", "centre"))
_DESCRIBED = [vector for each in (EPILOGUES | ROW_OPS).values() for vector in each.vectors]
_VECTORS |= {vector.name: None for vector in _DESCRIBED if isinstance(vector, Row)}


def register_rules() -> None:
    for name in CUTS:
        torch.library.register_torch_dispatch(f"{NAMESPACE}::{name}", DTensor, _run_op)
    for name in SUBSCRIPTS:
        torch.library.register_torch_dispatch(f"{NAMESPACE}::{name}", DTensor, run_subscripts)
    for name in PROGRAMS:
        torch.library.register_torch_dispatch(f"{NAMESPACE}::{name}", DTensor, _run_program)


def _run_program(*call):
    from ._programs import run_program_op  # which imports what traces functions

    return run_program_op(*call)


def _run_op(cls, op, types, args, kwargs):
    """op(*args, **kwargs), which PyTorch calls below autograd."""
    names = [argument.name for argument in op._schema.arguments]
    values = {argument.name: argument.default_value for argument in op._schema.arguments}
    values |= dict(zip(names, args, strict=False)) | (kwargs or {})
    # It belongs to the weight as a whole, and changes no digit.
    values["weight_split"] = None
    values = {name: values[name] for name in names}
    with torch.no_grad():
        call = _Call(op, values)
        shards = call.cut()
        if call.takes_part():
            results = call.run_op(op, values | shards)
        else:
            results = call.make_nothing(shards)
        call.write_back()
        if isinstance(results, Tensor):
            return call.wrap_result(0, results)
        return tuple(call.wrap_result(i, result) for i, result in enumerate(results))


def apply_to_shards(op: str, function, arguments: tuple) -> DTensor:
    """y of function.apply(*arguments), differentiably."""
    op = getattr(ops, op).default
    names = [argument.name for argument in op._schema.arguments][: len(arguments)]
    # Behind the tensors the arguments of both differ.
    values = {
        name: value
        for name, value in zip(names, arguments, strict=False)
        if isinstance(value, Tensor)
    }
    call = _Call(op, values)
    shards = call.cut()
    groups = call.find_groups()
    if call.takes_part() and groups:
        results = run_composed(
            call.name, dict(zip(names, arguments, strict=False)) | shards, groups
        )
    elif call.takes_part():
        local = [shards.get(name, value) for name, value in zip(names, arguments, strict=False)]
        results = function.apply(*local, *arguments[len(names) :])
    else:
        results = call.make_nothing(shards)
    call.write_back()
    return call.wrap_result(0, results[0] if isinstance(results, tuple) else results)


class _Call(Shards):
    """The tensors of a call by their names in the op, and where each has to be."""

    def __init__(self, op, values: dict) -> None:
        self.schema, self.name = op._schema, op._schema.name.partition("::")[2]
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        updated = {a.name for a in self.schema.arguments if a.alias_info is not None}
        super().__init__(name_in_messages(self.name), tensors, updated)
        self.keeps_z = bool(values.get("keep_z"))
        # Whole sizes are checked: shards may fit where these do not.
        self._check_sizes()
        self.layouts = choose_layouts(self.name, self.tensors, len(self.schema.returns))

    def _check_sizes(self) -> None:
        op, x = self.op, self.tensors.get("x")
        if x is None:
            return
        check_rank(op, x)
        weight = self.tensors.get("weight")
        if weight is not None:
            check_matrices(op, x, weight, may_mix=self.name in EPILOGUES)
        n = self._count_columns()
        for name in ROWS_OR_SCALARS:
            check_row_or_scalar(op, name, self.tensors.get(name), x, n)
        for name in _VECTORS:
            check_vector(op, name, self.tensors.get(name), x, n)

    def _count_columns(self) -> int:
        weight = self.tensors.get("weight")
        return self.tensors["x"].shape[-1] if weight is None else weight.shape[0]

    def run_op(self, op, values: dict):
        """Its results, of shards; without gradients."""
        groups = self.find_groups()
        if not groups:
            return op(*values.values())
        values = {name: value for name, value in values.items() if value is not None}
        values.setdefault("momentum", None)
        if self.name.endswith("_train"):
            return run_train_op(self.name, values, groups)
        return run_composed(self.name, values, groups)

    def make_nothing(self, shards: dict[str, Tensor]):
        """Results of a process that is not in the mesh, of which all shards are empty."""
        nothing = sum(t for t in shards.values() if t.is_floating_point())
        results = len(self.schema.returns)
        return nothing if results == 1 else (nothing,) * results

    def wrap_result(self, i: int, shard: Tensor) -> DTensor:
        """The result with this number: y, and behind it z, mean and rstd, as far as there are."""
        shape, stride = self._find_shape(i)
        placements = [layout.results[i] for layout in self.layouts]
        return self.wrap(shard, placements, shape, stride)

    def _find_shape(self, i: int) -> tuple:
        if "x" not in self.tensors:
            return None, None  # not cut: the shard has it
        rows, n = self.tensors["x"].shape[:-1], self._count_columns()
        results = len(self.schema.returns)
        if i > 0 and i >= results - 2:
            return torch.Size([n]), (1,)
        if i == 1 and not self.keeps_z:
            rows = rows[:0] + (0,)
        shape = torch.Size([*rows, n])
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        return shape, tuple(strides)
