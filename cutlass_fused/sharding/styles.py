"""Styles of torch.distributed.tensor.parallel.parallelize_module for modules of this package."""

import functools

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ColwiseParallel as TorchColwiseParallel
from torch.distributed.tensor.parallel import RowwiseParallel as TorchRowwiseParallel
from torch.distributed.tensor.parallel import SequenceParallel as TorchSequenceParallel


class ColwiseParallel(TorchColwiseParallel):
    """torch.distributed.tensor.parallel.ColwiseParallel, which also takes the modules of this
    package that hold a Linear, LinearActivation with a PReLU, and batch norms.

    Each process has columns of y, with their rows of weight and their elements of bias, scale and
    the batch norm. Nothing is sent, but by a softmax, which adds up over the processes. A batch
    norm alone takes its columns of x: its input_layouts is Shard(-1) where it gets local tensors
    of another layer of this style.

    Args:
        input_layouts, output_layouts, use_local_output: as of PyTorch's style.

    Raises NotImplementedError for a module that neither this package nor PyTorch's style knows.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        linear = _find_linear(module)
        if linear is None and not isinstance(module, nn.BatchNorm1d):
            return super()._apply(module, device_mesh)

        def place(tensor: Tensor) -> Placement:
            if linear is not None and tensor is linear.weight:
                return Shard(0)
            # Vectors of the columns, also as (1, N).
            return Shard(tensor.dim() - 1) if tensor.numel() > 1 else Replicate()

        wanted = (Replicate() if linear is not None else Shard(-1),)
        return _distribute(self, module, device_mesh, place, wanted)


class RowwiseParallel(TorchRowwiseParallel):
    """torch.distributed.tensor.parallel.RowwiseParallel, which also takes the modules of this
    package that hold a Linear, and LinearActivation with a PReLU.

    Each process has columns of x and of weight. Their products are added up over the processes in
    fp32 (float64 for float64 x), and what follows the product runs behind that sum, in each.

    Args:
        input_layouts, output_layouts, use_local_output: as of PyTorch's style.

    Raises NotImplementedError for a module that neither this package nor PyTorch's style knows.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        linear = _find_linear(module)
        if linear is None:
            return super()._apply(module, device_mesh)

        def place(tensor: Tensor) -> Placement:
            return Shard(1) if tensor is linear.weight else Replicate()

        return _distribute(self, module, device_mesh, place, (Shard(-1),))


class SequenceParallel(TorchSequenceParallel):
    """torch.distributed.tensor.parallel.SequenceParallel, which also takes modules that hold
    others, as those of this package do.

    Each process has rows of x, and all of the parameters. With sequence_dim=0 these are the rows of
    a batch: nothing is sent, but in training the statistics of a batch norm, which are merged.

    Args:
        sequence_dim, use_local_output: as of PyTorch's style.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _place_all(self, module, device_mesh, lambda tensor: Replicate())
        prepare = functools.partial(self._prepare_input_fn, self.sequence_sharding)
        finish = functools.partial(self._prepare_output_fn, self.use_local_output)
        return distribute_module(module, device_mesh, None, prepare, finish)


def _find_linear(module: nn.Module) -> nn.Linear | None:
    """Itself, or the one that a module of this package holds."""
    linear = module if isinstance(module, nn.Linear) else module._modules.get("gemm")
    return linear if isinstance(linear, nn.Linear) else None


def _distribute(style, module: nn.Module, mesh: DeviceMesh, place, wanted: tuple) -> nn.Module:
    """place: where a parameter or buffer is to lie; wanted: where x is."""
    _place_all(style, module, mesh, place)
    prepare = functools.partial(style._prepare_input_fn, style.input_layouts, wanted)
    finish = functools.partial(
        style._prepare_output_fn, style.output_layouts, style.use_local_output
    )
    return distribute_module(module, mesh, None, prepare, finish)


def _place_all(style, module: nn.Module, mesh: DeviceMesh, place) -> None:
    placements = {id(tensor): place(tensor) for tensor in (*module.parameters(), *module.buffers())}
    # One that stands in several places stays one. The old ones are held: an id may come again.
    made: dict[int, tuple[Tensor, Tensor]] = {}

    def distribute(tensor: Tensor) -> Tensor:
        options = {"src_data_rank": style.src_data_rank}
        found = distribute_tensor(tensor.detach(), mesh, [placements[id(tensor)]], **options)
        if isinstance(tensor, nn.Parameter):
            found = nn.Parameter(found, requires_grad=tensor.requires_grad)
        return found

    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is None or isinstance(tensor, DTensor):
                    continue
                if id(tensor) not in made:
                    made[id(tensor)] = tensor, distribute(tensor)
                held[name] = made[id(tensor)][1]
