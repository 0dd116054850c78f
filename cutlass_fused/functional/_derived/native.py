"""Calls with gradients in C++ (src/switch/gradients.cpp), where nothing but autograd looks at them.

A torch.autograd.Function in Python, as the functions have otherwise, takes longer on the host than
a layer of PyTorch does, forward and backward.
"""

import functools

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..._namespace import NAMESPACE, ops
from ...weights import accumulated, splits
from .._arguments import is_autocast_enabled

_TRAINING = ("linear_scale_batch_norm", "linear_batch_norm_scale_softmax")
_PLAIN = (Tensor, torch.nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def is_served(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the C++ ops can take a call that asks for a gradient. Of a weight that is not trained
    the parts are kept, in Python."""
    return (
        type(weight) in _PLAIN
        and weight.requires_grad
        and (bias is None or type(bias) in _PLAIN)
        and x.dtype == weight.dtype
        and _is_taken(x)
    )


def _is_taken(x: Tensor) -> bool:
    return (
        type(x) in _PLAIN
        and (x.is_cpu or x.is_cuda)
        and x.dtype in _DTYPES
        and not x.is_nested
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and is_defined()
    )


def takes(x, weight, bias) -> bool:
    """is_served, asked in front of everything else of a call, whose arguments may be anything:
    whether it asks for a gradient, and no mode, no tracer and no autocast looks at it."""
    return (
        not torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and is_served(x, weight, bias)
        and x.layout is torch.strided
        and forward_ad._current_level < 0
        and not is_autocast_enabled(x)
        and not torch._C._is_tracing()
        and not torch.compiler._is_exporting_flag
    )


def linear(x, weight, bias, precision: str, out: str | None) -> Tensor:
    splits.forget_trained(weight)
    more = *splits.share(weight, precision), accumulated.find_buffer(weight)
    return ops.linear_with_gradient.default(x, weight, bias, precision, out, *more)


def linear_scale_leaky_relu(
    x, weight, bias, multiplier: float, negative_slope: float, precision: str, out: str | None
) -> Tensor:
    splits.forget_trained(weight)
    more = *splits.share(weight, precision), accumulated.find_buffer(weight)
    return ops.linear_scale_leaky_relu_with_gradient.default(
        x, weight, bias, multiplier, negative_slope, precision, out, *more
    )


def serves_training(op: str, tensors: dict[str, Tensor | None]) -> bool:
    """Whether there is a C++ op of this name for these of its arguments. A tensor that cannot be
    saved is refused in Python, in front of what moves statistics."""
    return (
        op in _TRAINING
        and is_served(tensors["x"], tensors["weight"], tensors["bias"])
        and all(map(_may_be_saved, tensors.values()))
    )


def serves_batch_norm(x: Tensor, *vectors: Tensor | None) -> bool:
    """The same of a batch norm alone."""
    return _is_taken(x) and all(map(_may_be_saved, (x, *vectors)))


def _may_be_saved(tensor: Tensor | None) -> bool:
    return tensor is None or (type(tensor) in _PLAIN and not tensor.is_inference())


def train(op: str, weight: Tensor, precision: str, arguments: tuple) -> Tensor:
    splits.forget_trained(weight)
    more = *splits.share(weight, precision), accumulated.find_buffer(weight)
    return getattr(ops, f"{op}_train_with_gradient").default(*arguments, *more)


@functools.cache
def is_defined() -> bool:
    """Whether there are ops for it."""
    from ...matmul import _native

    kernels = _native.load()
    if isinstance(kernels, str) or not kernels.define_gradients():
        return False
    _give_product()
    return True


@functools.cache
def _give_product() -> None:
    """The kernel of an op for products of gradients that are themselves mapped or differentiated in
    forward mode, for which functions in C++ have no rules."""
    from .._product import multiply

    # The first key stands in front of what torch.func does to the calls of an op, and is not there
    # without it.
    for key in ("FuncTorchDynamicLayerFrontMode", "CompositeImplicitAutograd"):
        _kernels.impl("transformed_product", multiply, key)


# They stay as long as the op does.
_kernels = torch.library.Library(NAMESPACE, "IMPL")
