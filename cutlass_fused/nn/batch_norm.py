"""BatchNorm1d."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ._parts import (
    SAME_FORWARD,
    call_as_leaf,
    check_batch_norm,
    check_parameters,
    collect_statistics,
    is_left_to_pytorch,
)
from ._script import refuse_script


class BatchNorm1d(torch.nn.BatchNorm1d):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta: torch.nn.BatchNorm1d with its own kernels.

    For (M, N) tensors of float16, bfloat16 and float32 it is cutlass_fused.functional.batch_norm,
    which also tells numerics and errors; for others, as (M, C, L), it is PyTorch's own. The
    parameters, the buffers and the state dict are those of torch.nn.BatchNorm1d.

    Unlike PyTorch's, a call that raises has not counted the batch.

    Args:
        num_features, eps, momentum, affine, track_running_stats, device, dtype: as of
            torch.nn.BatchNorm1d.
    """

    @classmethod
    def from_eager(cls, bn: torch.nn.BatchNorm1d) -> "BatchNorm1d":
        """A module that shares the Parameters and buffers of `bn` and takes over its mode.

        A buffer that is replaced later, by `.to()` or by assignment, is shared no longer.

        Raises TypeError where `bn` is no torch.nn.BatchNorm1d, or has another forward, hooks, or a
        weight that is no Parameter, as under a parametrization.
        """
        check_batch_norm("BatchNorm1d", bn)
        check_parameters("BatchNorm1d", "bn", bn)
        module = cls(
            bn.num_features,
            bn.eps,
            bn.momentum,
            bn.affine,
            bn.track_running_stats,
            device="meta",
        )
        module.weight, module.bias = bn.weight, bn.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(module, name, getattr(bn, name))
        return module.train(bn.training)

    __prepare_scriptable__ = refuse_script

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return call_as_leaf(self, input)
        if isinstance(input, Tensor) and is_left_to_pytorch(input, self):
            return super().forward(input)
        return functional.batch_norm(input, **collect_statistics(self))

    def _get_name(self) -> str:
        return "cutlass_fused.BatchNorm1d"


SAME_FORWARD[torch.nn.BatchNorm1d] = BatchNorm1d.forward
