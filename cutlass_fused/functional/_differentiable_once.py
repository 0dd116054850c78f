"""The backward passes are differentiated once, and say so where it would be a second time."""

import functools

import torch
from torch import Tensor

from ._arguments import asks_outside

_ERROR = "cannot differentiate twice: the gradients of cutlass_fused have no gradients themselves"


def differentiable_once(backward):
    """backward(ctx, saved, *grads) as the backward(ctx, *grads) of a torch.autograd.Function.

    A second backward pass that reaches these gradients raises RuntimeError, by way of a gradient
    that came in or of a saved tensor, as in a gradient penalty. PyTorch's once_differentiable sees
    only the former, and leaves the share of the latter out, silently.
    """

    @functools.wraps(backward)
    def check(ctx, *grads):
        saved = ctx.saved_tensors  # once: checkpoints refuse a second look
        with torch.no_grad():
            results = backward(ctx, saved, *grads)
        # A compiled function refuses a second backward pass itself.
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return results
        read = [tensor for tensor in (*grads, *saved) if tensor is not None]
        if torch._C._are_functorch_transforms_active():
            # Also in a transform around the innermost, and outside of all.
            asking = [tensor for tensor in read if asks_outside(tensor, below=True)]
        else:
            asking = [tensor for tensor in read if tensor.requires_grad]
        if not asking:
            return results
        results = results if isinstance(results, tuple) else (results,)
        return _RaiseInBackward.apply(len(asking), *asking, *results)

    return check


class _RaiseInBackward(torch.autograd.Function):
    """Gives the results behind the first tensors; those are inputs so that any way back to one of
    them comes by here."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count, *tensors):
        return tuple(t.detach() if isinstance(t, Tensor) else t for t in tensors[count:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(_ERROR)
