"""The tensors of one call with DTensors: how they become shards, and what comes back DTensors."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from ._composed import Groups
from ._layouts import COMPOSED, Layout


class Shards:
    """The tensors of a call by their names, and where each has to be: `layouts`, one for each
    dimension of the mesh, which who makes this sets.

    op: in messages.
    updated: the names of tensors that are written to.
    """

    layouts: list[Layout]

    def __init__(self, op: str, tensors: dict[str, Tensor], updated: set[str]) -> None:
        self.op, self.updated = op, updated & tensors.keys()
        self.mesh = next(t.device_mesh for t in tensors.values() if isinstance(t, DTensor))
        self.tensors = {name: self._distribute(name, tensor) for name, tensor in tensors.items()}
        self.copies: dict[str, DTensor] = {}

    def _distribute(self, name: str, tensor: Tensor) -> DTensor:
        """A tensor of one element is the same everywhere, as to PyTorch; others where PyTorch was
        told so."""
        op = self.op
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

    def takes_part(self) -> bool:
        return self.mesh.get_coordinate() is not None

    def find_groups(self) -> Groups:
        """Of processes that add up something between the parts of the op."""
        cuts = [layout.cut for layout in self.layouts]

        def find(cut: str) -> tuple:
            return tuple(self.mesh.get_group(dim) for dim, each in enumerate(cuts) if each == cut)

        return Groups(*map(find, COMPOSED)) if self.takes_part() else Groups()

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

    def write_back(self) -> None:
        with torch.no_grad():
            for name, copy in self.copies.items():
                self.tensors[name].copy_(copy)

    def wrap(self, shard: Tensor, placements, shape=None, stride=None) -> DTensor:
        """A result, of the whole sizes where they are given."""
        return _Whole.apply(shard, self.mesh, placements, shape, stride, False)


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
