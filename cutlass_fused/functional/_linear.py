"""linear and its gradient."""

import torch
from torch import Tensor

from ..precision import resolve_precision
from ..sharding import apply
from ..weights.splits import find_split, find_split_under_grad
from ._arguments import (
    cast_for_autocast,
    check_tensors,
    differentiates,
    name_out,
    no_autocast,
    refuse_forward_ad,
)
from ._differentiable_once import differentiable_once
from ._other_layouts import STRIDED, apply_to_rows, is_jagged, multiply_sparse
from ._product import differentiate_product, keep_for_product, linear_op


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
) -> Tensor:
    """y = x @ weight.T + bias

    Args:
        x: (..., K), float16, bfloat16 or float32 (on the CPU also float64); any strides, any number
            of leading dimensions, also none. A sparse x is multiplied by PyTorch, and the result is
            dense. A nested x of jagged layout and its result have the same offsets.
        weight: (N, K), dtype of x; any strides.
        bias: (N,), dtype of x or float32, any stride.
        precision: what float32 inputs get. "ieee": an error no larger than that of cuBLAS in fp32;
            "tf32": that of TF32 (cutlass_fused.precision has the bounds); None follows
            torch.backends.cuda.matmul.fp32_precision (torch.compile recompiles when that changes,
            torch.export keeps what it found).
        out_dtype: dtype of x or float32; None is the dtype of x.
        weight_split: what torch.ops.cutlass_fused.split_weight returned for this weight and
            precision, if the weight has not changed since: used where no gradient is asked for. See
            cutlass_fused.prepare, which keeps one with a module.

    Returns:
        (..., N), contiguous, of `out_dtype`.

    Numerics: sums and bias in fp32 (float64 for float64 inputs), rounded once, at the end. Under
    autocast x, weight and bias are cast to its dtype first, as torch.nn.functional.linear does.
    The backward pass uses the same precision; each gradient has the dtype of its input.

    Raises:
        TypeError: x, weight or bias is not a tensor.
        NotImplementedError: forward-mode differentiation.
        ValueError: unknown precision.
        RuntimeError: shapes, dtypes, layouts or devices that do not fit; torch.jit.trace with a
            gradient to record; CUDA tensors where the library is not built or the GPU is not
            supported.
    """
    check_tensors("linear", x, weight, bias)
    if x.layout is not STRIDED:
        if is_jagged(x):
            options = {"precision": precision, "out_dtype": out_dtype, "weight_split": weight_split}
            return apply_to_rows(linear, x, weight, bias, **options)
        return multiply_sparse("linear", x, weight, bias, precision, out_dtype)
    refuse_forward_ad("linear")
    x, weight, bias = cast_for_autocast(x, weight, bias)
    precision = resolve_precision(precision, "linear", x.dtype)
    if differentiates(x, weight, bias):
        return apply("linear", _Linear, (x, weight, bias, precision, name_out(x, out_dtype)))
    split = find_split(weight, precision, weight_split)
    return linear_op(x, weight, bias, precision, None, split, name_out(x, out_dtype))


class _Linear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, precision, out):
        split = find_split_under_grad(weight, precision)
        return linear_op(x, weight, bias, precision, None, split, out)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.precision, _ = inputs
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, bias))

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, grad_y):
        x, weight = saved
        with no_autocast(grad_y):
            grads = differentiate_product(ctx, grad_y, x, weight)
        return *grads, None, None
