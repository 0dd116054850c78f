"""linear_epilogue: an epilogue as an argument of a function."""

import functools
import types
from collections.abc import Callable

import torch
from torch import Tensor

from ..functional._documents import document
from ..precision import Precision
from .common import MADE, make_epilogue

# What TorchDynamo takes for a constant; modules, methods and other objects it does not.
_CONSTANTS = (
    *(str, functools.partial, types.FunctionType),
    *(types.BuiltinFunctionType, types.MethodDescriptorType),
)


@document
def linear_epilogue(
    x: Tensor,
    weight: Tensor,
    epilogue: "str | Callable[..., Tensor]",
    /,
    *,
    precision: Precision | None = None,
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
    **operands: "Tensor | float | None",
):
    """y = epilogue(x @ weight.T, **operands), element by element

    Args:
        x: (..., K), float16, bfloat16 or float32 (on the CPU also float64); any strides, any number
            of leading dimensions, also none.
        {weight}
        epilogue: what cutlass_fused.epilogue made of a function of elements; or the function, with
            which goes what is made of it, so that it should be one and the same in all calls
            (torch.compile breaks its graph at modules and other objects that are called); or a
            name: "identity", "relu", "leaky_relu", "prelu", "gelu", "gelu_tanh", "silu", "sigmoid",
            "tanh", "clamp", "hardtanh", "hardswish", "mish", "softplus" or "elu".
        {precision}
        out_dtype: dtype of x or float32. None is what PyTorch makes of x and the operands, of which
            those of no dimension count as numbers.
        {weight_split}
        operands: by the names that the function gives them. A tensor of any floating dtype on the
            device of x: () or (1,), one value for all; (N,), one for each column; (..., 1), one for
            each row of x; (..., N), one for each element. Where M = N, (N,) counts columns. One of
            no dimension may lie on the CPU. A number is part of the program: one that changes
            should be a tensor of no dimension. Each name above has an optional `bias` (N,), "prelu"
            a `slope`, (1,) or (N,), and the others PyTorch's numbers by PyTorch's names, such as
            negative_slope.

    Returns:
        (..., N), contiguous, of `out_dtype`; a tuple where the function returns one. A result of
            groups of columns is (..., N / width), one of (M,) is (...,).

    Numerics: sums and function in fp32 (float64 for float64 inputs), rounded once, at the end; NaN
    and infinities come out where PyTorch puts them. Under autocast x and weight are cast to its
    dtype first, operands are not.
    {backward}

    Raises:
        TypeError: x or weight is not a tensor, an operand is missing, unknown, or none of a tensor,
            a number and None, or epilogue is no function.
        ValueError: unknown precision or name.
        RuntimeError: shapes, dtypes, layouts or devices that do not fit; a function that is none of
            elements, with its line; torch.jit.trace with a gradient to record; CUDA tensors where
            the library is not built or the GPU is not supported.
    """
    from .epilogue import Epilogue, call_uncompiled

    options = {"precision": precision, "out_dtype": out_dtype, "weight_split": weight_split}
    if torch.compiler.is_dynamo_compiling() and not isinstance(epilogue, (Epilogue, *_CONSTANTS)):
        return call_uncompiled(epilogue, x, weight, options | operands)
    if not isinstance(epilogue, Epilogue):
        epilogue = getattr(MADE, make_epilogue(epilogue))
    return epilogue(x, weight, **options, **operands)
