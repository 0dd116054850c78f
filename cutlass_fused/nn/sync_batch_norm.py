"""SyncBatchNorm."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ._parts import (
    NORMS,
    call_as_leaf,
    check_parameters,
    check_part,
    collect_statistics,
    is_left_to_pytorch,
)
from ._script import refuse_script

_KINDS = (
    torch.nn.BatchNorm1d,
    torch.nn.BatchNorm2d,
    torch.nn.BatchNorm3d,
    torch.nn.SyncBatchNorm,
)


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta: torch.nn.SyncBatchNorm with its own kernels.

    In training the mean and the variance are those of the batches of all processes of a group,
    which move the running statistics; in eval they are the running ones, and nothing is sent. For
    (M, N) tensors it is cutlass_fused.functional.batch_norm, which also tells numerics and errors,
    and it runs on the CPU too. For others, as (M, C, L), it is PyTorch's own. The parameters, the
    buffers and the state dict are those of torch.nn.SyncBatchNorm and of torch.nn.BatchNorm1d. It
    is no torch.nn.SyncBatchNorm, which DistributedDataParallel refuses on the CPU.

    Every process of the group has to call it in training, with any number of rows, or none. The
    running statistics are then the same bits in all processes. The gradients of weight and bias are
    those of the rows of this process, which DistributedDataParallel adds up.

    Args:
        num_features, eps, momentum, affine, track_running_stats, device, dtype: as of
            torch.nn.BatchNorm1d.
        process_group: as of torch.nn.SyncBatchNorm; None is all processes. Where there is no other
            process the statistics are those of the batch.
    """

    _check_input_dim = torch.nn.SyncBatchNorm._check_input_dim
    _check_non_zero_input_channels = torch.nn.SyncBatchNorm._check_non_zero_input_channels

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group=None,
        device=None,
        dtype=None,
    ) -> None:
        options = {"device": device, "dtype": dtype}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)
        self.process_group = process_group

    @classmethod
    def from_eager(cls, bn: torch.nn.Module, process_group=None) -> "SyncBatchNorm":
        """A module that shares the Parameters and buffers of `bn` and takes over its mode; of a
        SyncBatchNorm also its group, where none is given.

        A buffer that is replaced later, by `.to()` or by assignment, is shared no longer.

        Raises TypeError where `bn` is no torch.nn.BatchNorm1d, BatchNorm2d, BatchNorm3d or
        SyncBatchNorm, or has another forward, hooks, or a weight that is no Parameter, as under a
        parametrization.
        """
        kinds = (*_KINDS, SyncBatchNorm)
        kind = next((each for each in kinds if isinstance(bn, each)), torch.nn.BatchNorm1d)
        check_part("SyncBatchNorm", "bn", bn, kind)
        check_parameters("SyncBatchNorm", "bn", bn)
        group = getattr(bn, "process_group", None) if process_group is None else process_group
        options = (bn.num_features, bn.eps, bn.momentum, bn.affine, bn.track_running_stats)
        module = cls(*options, process_group=group, device="meta")
        module.weight, module.bias = bn.weight, bn.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(module, name, getattr(bn, name))
        return module.train(bn.training)

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, process_group=None):
        """The model itself, in which each batch norm, also one within a LinearScaleBatchNorm1d or a
        LinearBatchNorm1dScaleSoftmax, is a SyncBatchNorm of this package that shares its
        Parameters and buffers; of a batch norm alone what stands for it. A batch norm that stands
        in several places becomes one.

        process_group: the processes that share statistics; None is all of them.

        Raises TypeError, with nothing converted, as from_eager does.
        """
        made: dict[int, torch.nn.Module] = {}
        for each in module.modules():
            if isinstance(each, torch.nn.modules.batchnorm._BatchNorm):
                made[id(each)] = cls.from_eager(each, process_group)
        for parent in list(module.modules()):
            for name, child in list(parent._modules.items()):
                if id(child) in made:
                    parent._modules[name] = made[id(child)]
        return made.get(id(module), module)

    __prepare_scriptable__ = refuse_script

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return call_as_leaf(self, input)
        if isinstance(input, Tensor) and is_left_to_pytorch(input, self):
            return torch.nn.SyncBatchNorm.forward(self, input)
        return functional.batch_norm(input, **collect_statistics(self))

    def _get_name(self) -> str:
        return "cutlass_fused.SyncBatchNorm"


NORMS.append(SyncBatchNorm)
