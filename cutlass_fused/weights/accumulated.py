"""Gradients of weights that backward passes add to a buffer, where somebody has asked for it."""

import weakref
from typing import NoReturn

import torch
from torch import Tensor

from ..checks import REFERENCE_DTYPES
from ..sharding import is_sharded

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
    linear_epilogue with one result, and functions with a product and a batch norm in training, and
    the modules of these. Other calls of this package that would give weight a gradient are refused
    before anything is launched: under autocast, in forward mode and torch.func, under dispatch
    modes, with a sparse x or one of another dtype. A graph of torch.compile returns gradients as
    ever, as does all that is not of this package, also of what is computed from weight. Where the
    gradient of a scale in front of a batch norm is asked for too, the gradient of weight is added
    in a pass of its own, and has been rounded to the dtype of weight.
    ``torch.autograd.grad`` of weight finds none, and adds nevertheless.
    A gradient of x that is differentiated again (create_graph=True) reads weight, too: what comes
    back that way goes to `weight.grad`. The whole gradient is then the sum of buffer and
    `weight.grad`.

    Whoever reads the buffer does so on the stream of the backward pass, or waits for it, and calls
    of one weight are on one stream. Threads take turns.

    Args:
        weight: (N, K), a parameter that requires a gradient; float16, bfloat16, float32 or float64.
        buffer: (N, K), contiguous, on the device of weight, float32 (float64 for float64), which
            the caller clears; or None: from now on weight has a gradient of its own again.

    The sum is the same in every run. The buffer lives until another or None takes its place, or
    weight is gone; ``torch.utils.swap_tensors`` refuses a weight that has one. Backward passes of
    calls that were made before keep to what was said then.

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
    if not buffers:  # as nearly always
        return None
    reference, buffer = buffers.get(id(weight), (None, None))
    if reference is None or reference() is not weight:
        return None
    _check_fit(weight, buffer)  # which an assignment to .data changes
    return buffer


def refuse_buffer(weight: Tensor) -> None:
    """In front of what would give the weight a gradient of its own."""
    if not torch.compiler.is_compiling() and find_buffer(weight) is not None:
        raise RuntimeError(
            f"{_NAME}: a weight with a buffer for its gradient must be in a call that gradients in "
            "C++ serve (eager mode, no autocast, no dispatch mode, a dense x of the dtype of "
            "weight), got another one"
        )


def refuse_recorded_buffer(weight: Tensor) -> None:
    """The same in front of ops of PyTorch, if they are recorded."""
    if torch.is_grad_enabled() and weight.requires_grad:
        refuse_buffer(weight)


def _check(weight, buffer) -> None:
    if type(weight) is not torch.nn.Parameter or is_sharded(weight):
        raise TypeError(
            f"{_NAME}: weight must be a torch.nn.Parameter, got {type(weight).__name__}"
        )
    if buffer is None:
        return
    if not isinstance(buffer, Tensor):
        raise TypeError(f"{_NAME}: buffer must be a tensor or None, got {type(buffer).__name__}")
    if not weight.requires_grad:
        _raise("weight must require a gradient", "one that does not")
    if buffer.requires_grad or buffer.is_inference():
        _raise("buffer must require no gradient and be no inference tensor", "one that does or is")
    _check_fit(weight, buffer)
    from ..functional._derived import native  # which reads this file

    if not native.is_defined():
        raise RuntimeError(
            f"{_NAME}: gradients in C++ must be there, in a library that was built for this "
            "version of torch, got none"
        )


def _check_fit(weight: Tensor, buffer: Tensor) -> None:
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    if weight.dim() != 2:
        _raise("weight must have 2 dimensions", f"shape {tuple(weight.shape)}")
    if weight.dtype not in REFERENCE_DTYPES:
        _raise("weight must be float16, bfloat16, float32 or float64", weight.dtype)
    if buffer.dtype != dtype:
        _raise(f"buffer must be {dtype}", buffer.dtype)
    if buffer.shape != weight.shape:
        shapes = tuple(weight.shape), tuple(buffer.shape)
        _raise(f"buffer must have the shape of weight, {shapes[0]}", f"shape {shapes[1]}")
    if buffer.device != weight.device:
        _raise(f"buffer must be on the device of weight, {weight.device}", buffer.device)
    if not buffer.is_contiguous():
        _raise("buffer must be contiguous", f"strides {buffer.stride()}")


def _raise(expected: str, found) -> NoReturn:
    raise RuntimeError(f"{_NAME}: {expected}, got {found}")
