"""F.linear with TF32 spelt out, forward and backward: PyTorch's setting allows it and does not
force it, so that cuBLAS may be more accurate than the yardstick of TF32 is meant to be."""

from __future__ import annotations

import torch
from accuracy import round_to_tf32
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return round_to_tf32(x) @ round_to_tf32(weight).t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = map(round_to_tf32, ctx.saved_tensors)
        grad = round_to_tf32(grad)
        flat = grad.reshape(-1, grad.shape[-1])
        return grad @ weight, flat.t() @ x.reshape(-1, x.shape[-1])


class SpellOutTf32(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function is not F.linear or arguments[0].dtype != torch.float32:
            return function(*arguments, **options)
        x, weight, *bias = arguments
        z = _Product.apply(x, weight)
        return z if not bias or bias[0] is None else z + bias[0]
