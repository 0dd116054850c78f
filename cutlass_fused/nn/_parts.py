"""The parts of plain models: their checks, and what a batch norm tells the functions."""

from collections.abc import Iterable

import torch


def check_linear(name: str, linear) -> None:
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(f"{name}: linear must be a torch.nn.Linear, got {type(linear).__name__}")


def check_batch_norm(name: str, bn) -> None:
    if not isinstance(bn, torch.nn.BatchNorm1d):
        raise TypeError(f"{name}: bn must be a torch.nn.BatchNorm1d, got {type(bn).__name__}")


def check_scale(name: str, scale, out_features: int) -> None:
    if not isinstance(scale, torch.nn.Parameter):
        raise TypeError(f"{name}: scale must be a torch.nn.Parameter, got {type(scale).__name__}")
    check_scale_shape(name, scale.shape, out_features)


def check_scale_shape(name: str, shape: int | Iterable[int], out_features: int) -> None:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if shape not in ((), (1,), (out_features,)):
        raise ValueError(
            f"{name}: scale_shape must be (), (1,) or (out_features,) = ({out_features},), "
            f"got {shape}"
        )


def is_left_to_eager(bn, x) -> bool:
    """Whether what follows the product is PyTorch's own: where x is no matrix, as (M, C, L), and
    behind another module than a BatchNorm1d, as a SyncBatchNorm, which knows of other processes.
    """
    if isinstance(x, torch.Tensor) and x.dim() != 2:
        return True
    return not isinstance(bn, torch.nn.BatchNorm1d)


def collect_statistics(bn: torch.nn.BatchNorm1d) -> dict:
    """The arguments that the functions take from a batch norm, decided as its own forward does.

    The statistics are those of the batch in training, and where there are no running ones. The
    running ones are updated in training only, and only if they are tracked.
    """
    training, running_mean, running_var = bn.training, bn.running_mean, bn.running_var
    momentum, count = bn.momentum, None
    if training:
        if bn.track_running_stats:
            count = bn.num_batches_tracked
        else:
            running_mean = running_var = None
        if momentum is None and count is None:
            momentum = 0.0  # PyTorch's: without a count nothing moves
    return {
        "running_mean": running_mean,
        "running_var": running_var,
        "gamma": bn.weight,
        "beta": bn.bias,
        "training": training or (running_mean is None and running_var is None),
        "momentum": momentum,
        "eps": bn.eps,
        "num_batches_tracked": count,
    }


def describe_precision(precision: str | None) -> str:
    return "" if precision is None else f", precision={precision!r}"
