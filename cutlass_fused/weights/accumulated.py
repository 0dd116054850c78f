"""Gradients of weights that backward passes add to a buffer, where somebody has asked for it."""

import weakref

import torch
from torch import Tensor

_NAME = "accumulate_gradient"
# By the id of a weight, which may be another tensor's by now.
buffers: dict[int, tuple[weakref.ref, Tensor]] = {}


def accumulate_gradient(weight: torch.nn.Parameter, buffer: Tensor | None) -> None:
    """From now on backward passes add the gradient of weight to buffer: buffer += grad_z.T @ x

    Where nothing else is behind it, the product itself adds, in fp32: no gradient of 16 bits is
    written, rounded and read again, and none is allocated. `weight.grad` stays as it is. Hooks of
    weight are called when its gradient has been added, with None in its place. Without this,
    backward passes return gradients as those of plain layers do.

    Calls in eager mode serve it, of linear, linear_scale_leaky_relu with a scale that is a number,
    and functions with a product and a batch norm in training, and the modules of these; other
    calls refuse such a weight before anything is launched, but those that a graph of torch.compile
    or torch.func.grad holds, which return gradients as ever. Where the gradient of a scale in front
    of a batch norm is asked for too, that of weight is added in a pass of its own.

    Args:
        weight: (N, K), a parameter that requires a gradient; float16, bfloat16, float32 or float64.
        buffer: (N, K), contiguous, on the device of weight, float32 (float64 for float64), which
            nobody clears; or None: from now on weight has a gradient of its own again.

    The sum is the same in every run. The buffer lives until another or None takes its place, or
    weight is gone. Backward passes of calls that were made before keep to what was said then.

    Raises TypeError where weight is no parameter or buffer neither a tensor nor None, and
    RuntimeError where they do not fit, or gradients in C++ are not there.
    """
    _check(weight, buffer)
    buffers.pop(id(weight), None)
    if buffer is None:
        return
    key = id(weight)

    def forget(reference: weakref.ref) -> None:
        if buffers.get(key, (None,))[0] is reference:
            del buffers[key]

    buffers[key] = weakref.ref(weight, forget), buffer


def find_buffer(weight: Tensor) -> Tensor | None:
    reference, buffer = buffers.get(id(weight), (None, None))
    return buffer if reference is not None and reference() is weight else None


def refuse_buffer(weight: Tensor) -> None:
    """In front of what would give the weight a gradient of its own."""
    if find_buffer(weight) is not None:
        raise RuntimeError(
            f"{_NAME}: a weight with a buffer for its gradient must be in a call that gradients in "
            "C++ serve (eager mode, no autocast, x of the dtype of weight), got another one"
        )


def _check(weight, buffer) -> None:
    if not isinstance(weight, torch.nn.Parameter):
        raise TypeError(
            f"{_NAME}: weight must be a torch.nn.Parameter, got {type(weight).__name__}"
        )
    if buffer is None:
        return
    if not isinstance(buffer, Tensor):
        raise TypeError(f"{_NAME}: buffer must be a tensor or None, got {type(buffer).__name__}")
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    found = {
        "weight must have 2 dimensions, got": (weight.dim() == 2, tuple(weight.shape)),
        "weight must require a gradient, got requires_grad": (
            weight.requires_grad,
            weight.requires_grad,
        ),
        f"buffer must be {dtype}, got": (buffer.dtype == dtype, buffer.dtype),
        f"buffer must have the shape of weight, {tuple(weight.shape)}, got": (
            buffer.shape == weight.shape,
            tuple(buffer.shape),
        ),
        f"buffer must be on the device of weight, {weight.device}, got": (
            buffer.device == weight.device,
            buffer.device,
        ),
        "buffer must be contiguous, got strides": (buffer.is_contiguous(), buffer.stride()),
        "buffer must require no gradient, got requires_grad": (
            not buffer.requires_grad,
            buffer.requires_grad,
        ),
    }
    for expected, (holds, value) in found.items():
        if not holds:
            raise RuntimeError(f"{_NAME}: {expected} {value}")
    from ..functional._derived import native  # which reads this file

    if not native.is_defined():
        raise RuntimeError(
            f"{_NAME}: gradients in C++ must be there, in a library that was built for this "
            "version of torch, got none"
        )
