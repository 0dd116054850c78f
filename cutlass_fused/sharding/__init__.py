"""Several processes: batch norms that share statistics, and calls with DTensors, in which each
process computes on its shards, and as little as possible is sent.

SyncBatchNorm is torch.nn.SyncBatchNorm by kernels of this package. ColwiseParallel, RowwiseParallel
and SequenceParallel are styles of torch.distributed.tensor.parallel.parallelize_module for its
modules.

The ops have a rule for DTensors, by torch.library.register_torch_dispatch. PyTorch's way for ops
without updates, torch.distributed.tensor.experimental.register_sharding, is not enough: where
running statistics have to be moved it updates the moved copy (torch 2.11). The functions with
gradients run on the shards as a whole, so that their backward passes do too.

torch.distributed.tensor is not imported by this package: the rules are made when a program does.
"""

import importlib
import sys
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._when_imported import when_imported

if TYPE_CHECKING:
    from ..nn.sync_batch_norm import SyncBatchNorm
    from .styles import ColwiseParallel, RowwiseParallel, SequenceParallel

__all__ = ["ColwiseParallel", "RowwiseParallel", "SequenceParallel", "SyncBatchNorm"]

# (DTensor,), once torch.distributed.tensor is imported.
_kinds: tuple[type, ...] = ()


def is_sharded(*values) -> bool:
    """Whether one of them is a DTensor."""
    return bool(_kinds) and any(isinstance(value, _kinds) for value in values)


def apply(op: str, function, arguments: tuple):
    """y of function.apply(*arguments), of a torch.autograd.Function that gives it alone or first.
    Its tensors stand where the op of this name has them."""
    # x or weight is sharded wherever any is; a lone other one reaches the op, which says so.
    if is_sharded(*arguments[:2]):
        return _apply_to_shards(op, function, arguments)
    results = function.apply(*arguments)
    return results[0] if isinstance(results, tuple) else results


def _apply_to_shards(*arguments) -> Tensor:
    """In eager mode, also under torch.compile, as normalize_over."""
    from ._call import apply_to_shards

    return apply_to_shards(*arguments)


def is_gathered(weight: Tensor) -> bool:
    """Whether it is a parameter that FSDP2 holds while its module runs: filled anew each time, in
    the same memory as likely as not, by writes that PyTorch is told not to count."""
    composable = sys.modules.get("torch.distributed._composable_state")
    if composable is None or not composable._module_state_mapping:  # to list none takes longer
        return False
    for state in list(composable._module_state_mapping.values()):
        for group in _list_groups(state()):
            for param in group.fsdp_params:
                if getattr(param, "_unsharded_param", None) is weight:
                    return True
    return False


def _list_groups(state) -> list:
    """Of parameters: one to torch 2.11. Where a newer torch has several, it refuses to name one."""
    if state is None:  # its module is gone
        return []
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [getattr(state, "_fsdp_param_group", None)]
    return [group for group in groups if group is not None]


def spans_processes(op: str, process_group, *tensors) -> bool:
    """Whether statistics are to be merged over a group: of more than this process, which is in
    it."""
    if process_group is None:
        return False
    distributed = torch.distributed
    # What new_group gives those that are not in the group is a number.
    outside = distributed.GroupMember.NON_GROUP_MEMBER
    is_outside = isinstance(process_group, int) and process_group == outside
    if not (isinstance(process_group, distributed.ProcessGroup) or is_outside):
        raise TypeError(
            f"{op}: process_group must be a torch.distributed.ProcessGroup or None, got "
            f"{type(process_group).__name__}"
        )
    if is_sharded(*tensors):
        raise RuntimeError(
            f"{op}: process_group must be None beside DTensors, whose mesh tells what is where, "
            f"got one"
        )
    return not is_outside and distributed.get_world_size(process_group) > 1


def find_default_group(process_group=None):
    """This group, else that of all processes; None where there is no such group."""
    if process_group is not None:
        return process_group
    distributed = torch.distributed
    is_there = distributed.is_available() and distributed.is_initialized()
    return distributed.group.WORLD if is_there else None


def normalize_over(*arguments) -> Tensor:
    """y of _synchronized.normalize_over, which the first call imports. Called as an attribute of
    this module: torch.compile has another put in its place."""
    from . import _synchronized

    return _synchronized.normalize_over(*arguments)


def _register(module) -> None:
    global _kinds
    if not _kinds:
        from ._call import register_rules

        register_rules()
        _kinds = (module.DTensor,)


def _disable(dynamo) -> None:
    """Collectives stay out of graphs, and so does what is between them."""
    global normalize_over, _apply_to_shards
    normalize_over = dynamo.disable(normalize_over)
    _apply_to_shards = dynamo.disable(_apply_to_shards)


def register_when_imported() -> None:
    when_imported("torch.distributed.tensor", _register)
    when_imported("torch._dynamo", _disable)


def __getattr__(name: str):
    """Public names when they are asked for: what they are made of imports this module, or
    torch.distributed.tensor."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "..nn.sync_batch_norm" if name == "SyncBatchNorm" else ".styles"
    found = getattr(importlib.import_module(place, __name__), name)
    globals()[name] = found
    return found
