"""A training call that raises behind its kernels leaves the running statistics as they were."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import _StopRecomputationError

from ..sharding import apply


def apply_in_training(op: str, function, arguments: tuple, tracked: tuple, saved: dict):
    """y of function.apply(*arguments), of the torch.autograd.Function over the training op of this
    name, which moves the `tracked` tensors.

    PyTorch saves tensors for the backward pass when the kernels have run. What it would refuse
    there is refused in front of them: tensors of torch.inference_mode, among the `saved` by their
    names. A hook of saved tensors (torch.autograd.graph) may raise there: only where there is one,
    the tracked tensors are copied before and copied back.
    """
    if torch.compiler.is_compiling():
        return apply(f"{op}_train", function, arguments)
    for name, tensor in saved.items():
        if tensor is not None and tensor.is_inference():
            raise RuntimeError(
                f"{op}: {name} must be no tensor of torch.inference_mode, which cannot be saved "
                f"for the backward pass, got one"
            )
    return call_or_restore(tracked, apply, f"{op}_train", function, arguments)


def call_or_restore(tracked: tuple, function: Callable, *arguments):
    """function(*arguments); where a hook of saved tensors may raise in it, and something does, the
    `tracked` tensors become what they were."""
    if torch.compiler.is_compiling():
        return function(*arguments)
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return function(*arguments)
    before = [None if tensor is None else tensor.clone() for tensor in tracked]
    try:
        return function(*arguments)
    except _StopRecomputationError:
        raise  # to a checkpoint it is a success: it has all that it wants of a second run
    except BaseException:
        with torch.no_grad():
            for tensor, value in zip(tracked, before, strict=True):
                if tensor is not None:
                    tensor.copy_(value)
        raise


def asks(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad
