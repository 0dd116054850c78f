"""One call with DTensors: how its tensors become shards, and its results DTensors."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from .._library import ops
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
from ._composed import Groups, run_composed, run_train_op
from ._layouts import COMPOSED, CUTS, ROWS_OR_SCALARS, choose_layouts

_VECTORS = dict.fromkeys(("bias", "running_mean", "running_var", "gamma", "beta", "centre"))
_DESCRIBED = [vector for each in (EPILOGUES | ROW_OPS).values() for vector in each.vectors]
_VECTORS |= {vector.name: None for vector in _DESCRIBED if isinstance(vector, Row)}


def register_rules() -> None:
    for name in CUTS:
        torch.library.register_torch_dispatch(f"cutlass_fused::{name}", DTensor, _run_op)


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
            return call.wrap(0, results)
        return tuple(call.wrap(i, result) for i, result in enumerate(results))


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
    return call.wrap(0, results[0] if isinstance(results, tuple) else results)


class _Call:
    """The tensors of a call by their names in the op, and where each has to be."""

    def __init__(self, op, values: dict) -> None:
        self.schema, self.name = op._schema, op._schema.name.partition("::")[2]
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        mesh = next(t.device_mesh for t in tensors.values() if isinstance(t, DTensor))
        self.mesh = mesh
        self.tensors = {name: self._distribute(name, tensor) for name, tensor in tensors.items()}
        self.keeps_z = bool(values.get("keep_z"))
        self.updated = {a.name for a in self.schema.arguments if a.alias_info is not None}
        self.updated &= self.tensors.keys()
        self.copies: dict[str, DTensor] = {}
        # Whole sizes are checked: shards may fit where these do not.
        self._check_sizes()
        self.layouts = choose_layouts(self.name, self.tensors, len(self.schema.returns))

    def _distribute(self, name: str, tensor: Tensor) -> DTensor:
        """A tensor of one element is the same everywhere, as to PyTorch; others where PyTorch was
        told so."""
        op = name_in_messages(self.name)
        if not isinstance(tensor, DTensor):
            if tensor.numel() != 1 and not DTensor._op_dispatcher._allow_implicit_replication:
                raise RuntimeError(
                    f"{op}: {name} must be a DTensor, as others are, got a tensor of shape "
                    f"{tuple(tensor.shape)}"
                )
            return DTensor.from_local(tensor, self.mesh, [Replicate()] * self.mesh.ndim)
        if not torch.is_grad_enabled():
            # Below autograd redistribute fails with one that asks for a gradient.
            tensor = tensor.detach()
        if tensor.device_mesh != self.mesh:
            raise RuntimeError(
                f"{op}: all tensors must be of one mesh, {self.mesh}, got {name} of "
                f"{tensor.device_mesh}"
            )
        return tensor

    def _check_sizes(self) -> None:
        op, x = name_in_messages(self.name), self.tensors.get("x")
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

    def takes_part(self) -> bool:
        return self.mesh.get_coordinate() is not None

    def find_groups(self) -> Groups:
        """Of processes that add up something between the parts of the op."""
        cuts = [layout.cut for layout in self.layouts]

        def find(cut: str) -> tuple:
            return tuple(self.mesh.get_group(dim) for dim, each in enumerate(cuts) if each == cut)

        return Groups(*map(find, COMPOSED)) if self.takes_part() else Groups()

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

    def cut(self) -> dict[str, Tensor]:
        """The shards to compute with."""
        return {name: self._cut(name, tensor) for name, tensor in self.tensors.items()}

    def _cut(self, name: str, tensor: DTensor) -> Tensor:
        placements = tuple(layout.inputs[name] for layout in self.layouts)
        if name in self.updated:
            # Not differentiated, and not a view: the op writes to it.
            with torch.no_grad():
                if tensor.placements != placements:
                    tensor = self.copies[name] = tensor.redistribute(placements=placements).clone()
                return tensor.to_local()
        tensor = _redistribute(tensor, placements)
        gradients = tuple(layout.gradients[name] for layout in self.layouts)
        # The gradient of the bias is that of y all the same, which every process has.
        return _Shard.apply(tensor, gradients, name == "bias" and not self._adds_bias())

    def _adds_bias(self) -> bool:
        """Whether this process does: one of those whose sums are added up."""
        coordinate = self.mesh.get_coordinate() or ()
        return not any(
            layout.cut == "inner" and index > 0
            for layout, index in zip(self.layouts, coordinate, strict=False)
        )

    def make_nothing(self, shards: dict[str, Tensor]):
        """Results of a process that is not in the mesh, of which all shards are empty."""
        nothing = sum(t for t in shards.values() if t.is_floating_point())
        results = len(self.schema.returns)
        return nothing if results == 1 else (nothing,) * results

    def write_back(self) -> None:
        with torch.no_grad():
            for name, copy in self.copies.items():
                self.tensors[name].copy_(copy)

    def wrap(self, i: int, shard: Tensor) -> DTensor:
        """The result with this number: y, and behind it z, mean and rstd, as far as there are."""
        shape, stride = self._find_shape(i)
        placements = [layout.results[i] for layout in self.layouts]
        return _Whole.apply(shard, self.mesh, placements, shape, stride, False)

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


class _Shard(torch.autograd.Function):
    """DTensor.to_local, or zeros in its place, with a gradient of the sizes of the whole, where
    PyTorch's takes all shards to be as large as this one. PyTorch's has no derivatives of its
    gradients either, where what it sends was not computed from them alone: it leaves them out."""

    @staticmethod
    def forward(ctx, tensor, placements, is_zero):
        ctx.whole = (tensor.device_mesh, placements, tensor.shape, tensor.stride(), is_zero)
        shard = tensor.to_local()
        return torch.zeros_like(shard) if is_zero else shard.view_as(shard)

    @staticmethod
    def backward(ctx, grad):
        return _Whole.apply(grad, *ctx.whole), None, None


class _Whole(torch.autograd.Function):
    """DTensor.from_local. Of its gradient each process gets a shard, or where shards are added up
    all, or zeros."""

    @staticmethod
    def forward(ctx, shard, mesh, placements, shape, stride, is_zero):
        ctx.placements, ctx.is_zero = placements, is_zero
        whole = {} if shape is None else {"shape": shape, "stride": stride}
        return DTensor.from_local(shard, mesh, placements, run_check=False, **whole)

    @staticmethod
    def backward(ctx, grad):
        grad = _redistribute(grad, ctx.placements)
        return _Shard.apply(grad, ctx.placements, ctx.is_zero), *(None,) * 5


class _Redistribute(torch.autograd.Function):
    """DTensor.redistribute, which to a gradient is the same the other way."""

    @staticmethod
    def forward(ctx, tensor, placements):
        ctx.placements = tensor.placements
        return tensor.redistribute(placements=placements)

    @staticmethod
    def backward(ctx, grad):
        return _redistribute(grad, ctx.placements), None


def _redistribute(tensor: DTensor, placements) -> DTensor:
    """To these placements, but whole where they are of parts of a sum."""
    placements = tuple(Replicate() if each.is_partial() else each for each in placements)
    return tensor if tensor.placements == placements else _Redistribute.apply(tensor, placements)
