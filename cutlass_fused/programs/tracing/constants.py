"""Tensors of one number that a function makes: each is kept as a tensor of no dimension on the CPU,
of its own dtype, and what is computed of such alone is computed with PyTorch's own ops."""

import math

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_aten = torch.ops.aten


def _first(value, *_, **__):
    return value


def _second(_, value, *__, **___):
    return value


def _third(_, __, value, *___, **____):
    return value


def _zero(*_, **__):
    return 0.0


def _one(*_, **__):
    return 1.0


def _nothing(*_, **__):
    """Of a tensor that is written later."""
    return math.nan


# What such ops fill a tensor with.
CONSTANTS = {
    _aten.scalar_tensor.default: _first,
    _aten.full.default: _second,
    _aten.full_like.default: _second,
    _aten.fill.Scalar: _second,
    _aten.new_full.default: _third,
    _aten.empty.memory_format: _nothing,
    _aten.empty_like.default: _nothing,
    _aten.zeros.default: _zero,
    _aten.zeros_like.default: _zero,
    _aten.new_zeros.default: _zero,
    _aten.zero.default: _zero,
    _aten.ones.default: _one,
    _aten.ones_like.default: _one,
    _aten.new_ones.default: _one,
}
# ... and that write it to the tensor that they are given.
WRITTEN_CONSTANTS = {_aten.fill_.Scalar: _second, _aten.zero_.default: _zero}


def makes_many_elsewhere(args, kwargs) -> bool:
    """Whether an op of CONSTANTS would fill memory: torch.ones(acc.shape) without its device."""
    sizes, device = args[0], kwargs.get("device")
    is_many = isinstance(sizes, (list, tuple)) and math.prod(sizes) > 1
    return is_many and (device is None or torch.device(device).type != "meta")


def make_constant(value, dtype: torch.dtype) -> Tensor:
    """fp32 as float64: a kernel rounds numbers to fp32, and a reference in float64 does not."""
    with torch._C._DisableTorchDispatch():
        dtype = torch.float64 if dtype == torch.float32 else dtype
        if isinstance(value, Tensor):
            return value.detach().to("cpu", dtype)
        return torch.tensor(value, dtype=dtype, device="cpu")


def read_constant(constant: Tensor) -> float | bool:
    with torch._C._DisableTorchDispatch():
        return bool(constant) if constant.dtype == torch.bool else float(constant)


def compute_constants(op, args, kwargs, results: list[Tensor]) -> list[Tensor]:
    """The results of an op whose tensors are all constants; `results` have their dtypes."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        found = op(*args, **kwargs)
    found = found if isinstance(found, (tuple, list)) else [found]
    return [make_constant(each, result.dtype) for each, result in zip(found, results, strict=True)]


class OnCPU(TorchFunctionMode):
    """torch.tensor(0.5, device=acc.device) lies on the CPU while acc has no device with numbers."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is Tensor.new_tensor:
            like, *args = args
            kwargs = {"dtype": like.dtype} | kwargs
            function = torch.tensor
        if function in (torch.tensor, torch.as_tensor) and not _is_meta(args):
            kwargs = kwargs | {"device": "cpu"}
        return function(*args, **kwargs)


def _is_meta(args) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and args[0].is_meta
