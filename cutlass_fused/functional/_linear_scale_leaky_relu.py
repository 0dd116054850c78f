"""linear_scale_leaky_relu and its gradient."""

import functools

import torch
from torch import Tensor

from .._library import ops
from ..epilogues.linear_scale_leaky_relu import (
    differentiate,
    differentiate_scale,
    find_factor,
    scale_leaky_relu,
)
from ..precision import Precision, resolve_precision
from ..reference import compute_dtype
from ..reference._epilogues import check_linear_scale_leaky_relu
from ..sharding import apply
from ..weights.splits import find_split, find_split_under_grad
from ._arguments import (
    NUMBERS,
    check_tensors,
    differentiates,
    float_of,
    is_traced_numpy,
    make_scale,
    name_out,
    no_autocast,
    read_number,
    requires_grad,
    scales_rows,
    take_matrices,
    take_scale,
    varies,
)
from ._derivatives import add, differentiable, is_forward_mode, keep_outputs
from ._derived import linear, native
from ._documents import document
from ._other_layouts import STRIDED, apply_to_rows, is_jagged, multiply_sparse
from ._product import (
    compose_product,
    differentiate_product,
    keep_for_product,
    linear_op,
    sum_to,
)

_PLAIN_NUMBERS = (float, int)
_linear_scale_leaky_relu_op = ops.linear_scale_leaky_relu.default


@document
def linear_scale_leaky_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: float | Tensor = 1.0,
    negative_slope: float = 0.01,
    *,
    precision: Precision | None = None,
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
) -> Tensor:
    """y = leaky_relu((x @ weight.T + bias) * scale, negative_slope)

    Args:
        {x}
        {weight}
        {bias}
        scale: a number, or a tensor with one element or of shape (N,) or (1, N), dtype of x,
            float32, narrower than x or of integers; one of shape (M, 1) or (M, N) multiplies z in
            PyTorch, which what follows it then reads. Any sign. A tensor stays on its device:
            nothing is read back. One of no dimension on the CPU is copied to x on each call, which
            a CUDA graph cannot capture. torch.compile compiles once more for a number that changes,
            and then no more: it hands it over as a tensor.
        negative_slope: a number of any sign. Where torch.compile has compiled for one that changes,
            it is applied behind the product, in a pass of its own.
        {precision}
        {promoted_out_dtype}
        {weight_split}

    Returns:
        {returns}

    Numerics: sums and tail in fp32 (float64 for float64 inputs), rounded once, at the end; NaN and
    infinities come out where PyTorch puts them. Under autocast x, weight and bias are cast to its
    dtype first, scale is not. The backward pass uses the same precision; each gradient has the
    dtype of its input.

    Raises:
        TypeError: x, weight or bias is not a tensor, scale neither a number nor a tensor, or
            negative_slope no number.
        {errors}
    """
    op = "linear_scale_leaky_relu"
    is_plain = type(scale) in _PLAIN_NUMBERS and type(negative_slope) in _PLAIN_NUMBERS
    if is_plain and native.takes(x, weight, bias):
        precision = resolve_precision(precision, op, weight.dtype)
        options = (float_of(scale), negative_slope, precision, name_out(x, out_dtype))
        return native.linear_scale_leaky_relu(x, weight, bias, *options)
    check_tensors(op, x, weight, bias)
    if x.layout is not STRIDED:
        options = {"precision": precision, "out_dtype": out_dtype}
        if is_jagged(x):
            options["weight_split"] = weight_split
            arguments = (weight, bias, scale, negative_slope)
            return apply_to_rows(linear_scale_leaky_relu, x, *arguments, **options)
        z = multiply_sparse(op, x, weight, bias, **options)
        y = torch.nn.functional.leaky_relu(z * scale, negative_slope)
        return y if out_dtype is None else y.to(out_dtype)
    negative_slope = read_number(op, "negative_slope", negative_slope)
    x, weight, bias, precision = take_matrices(op, x, weight, bias, precision)
    is_traced = torch.compiler.is_dynamo_compiling()
    if isinstance(scale, Tensor):
        asked, multiplier = out_dtype, 1.0
        scale, out_dtype = take_scale(op, scale, x, out_dtype)
        if scales_rows(scale, x, weight):
            check_linear_scale_leaky_relu(x, weight, bias, None, precision, asked, None)
            z = linear(x, weight, bias, precision=precision, weight_split=weight_split)
            return torch.nn.functional.leaky_relu(z * scale, negative_slope).to(out_dtype)
    elif isinstance(scale, NUMBERS):
        if is_traced and varies(scale):
            scale, multiplier = make_scale(op, scale, x), 1.0
        else:
            scale, multiplier = None, float_of(scale)
    elif is_traced_numpy(scale):
        scale, multiplier = make_scale(op, scale, x), 1.0
    else:
        raise TypeError(f"{op}: scale must be a number or a tensor, got {type(scale).__name__}")
    if is_traced and varies(negative_slope):
        # The op takes no slope that is a tensor; with a slope of 1 it gives v.
        factor, options = multiplier if scale is None else scale, {"weight_split": weight_split}
        options |= {"precision": precision, "out_dtype": compute_dtype(x)}
        v = linear_scale_leaky_relu(x, weight, bias, factor, 1.0, **options)
        return torch.where(v > 0, v, v * negative_slope).to(out_dtype or x.dtype)
    if is_forward_mode():
        dtype = check_linear_scale_leaky_relu(x, weight, bias, scale, precision, out_dtype, None)
        with no_autocast(x):
            z = compose_product(x, weight, bias, precision)
            return scale_leaky_relu(z, scale, multiplier, negative_slope).to(dtype)
    if differentiates(x, weight, bias, scale):
        if scale is None and native.is_served(x, weight, bias):  # as under autocast
            options = (multiplier, negative_slope, precision, name_out(x, out_dtype))
            return native.linear_scale_leaky_relu(x, weight, bias, *options)
        # The gradient of scale needs z, which the fused op does not give.
        keep_z = requires_grad(scale)
        if keep_z and is_plain_training(x, weight, bias, scale):
            dtype = check_linear_scale_leaky_relu(
                x, weight, bias, scale, precision, out_dtype, None
            )
            # As a call that names none, which a site of `fuse` then finds by that.
            is_default = out_dtype is None and scale.dtype == x.dtype
            options = {"precision": precision, "out_dtype": None if is_default else dtype}
            of = collect_trained(scale, negative_slope, bias)
            return make_trained()(x, weight, **options, **of)
        options = (multiplier, negative_slope, precision, out_dtype, keep_z)
        return apply(op, _LinearScaleLeakyReLU, (x, weight, bias, scale, *options))
    return _linear_scale_leaky_relu_op(
        x,
        weight,
        bias,
        scale,
        multiplier,
        negative_slope,
        precision,
        None,
        find_split(weight, precision, weight_split),
        name_out(x, out_dtype),
    )


@functools.cache
def make_trained():
    """The same with a scale that is trained, as a program. Its gradient is one kernel, which adds
    up those of bias and scale. PyTorch's ops behind z, as below, are a dozen: of 1024 x 768 x 512 a
    step in bf16 takes 24 us, with those it took 115, and eager PyTorch takes 53 (H200)."""
    from ..programs.epilogue import Epilogue  # tracing takes long to import

    def linear_scale_leaky_relu(acc, scale, bias=None, negative_slope=0.01):
        z = acc if bias is None else acc + bias
        return torch.nn.functional.leaky_relu(z * scale, negative_slope)

    return Epilogue(linear_scale_leaky_relu)


def collect_trained(scale: Tensor, negative_slope: float, bias: Tensor | None) -> dict:
    """What the program is called with."""
    given = {"scale": scale, "negative_slope": negative_slope}
    return given if bias is None else {**given, "bias": bias}


def is_plain_training(*tensors: Tensor | None) -> bool:
    """Whether the program has all that is asked of these: a graph of torch.compile, transforms of
    torch.func and shards have it of the Function below."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    kinds = (Tensor, torch.nn.Parameter)
    x, *_, scale = tensors
    return (
        x.is_cuda
        and scale.dim() <= 1
        and all(each is None or type(each) in kinds for each in tensors)
    )


class _LinearScaleLeakyReLU(torch.autograd.Function):
    """Gives y and what its backward pass reads: z if `keep_z`, else the mask v > 0.

    With the mask v = z * scale * multiplier is needed nowhere. It is a tensor of its own although y
    has the same signs: it is smaller, and y, like that of PyTorch's own LeakyReLU, may be written
    to in place.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, scale, multiplier, slope, precision, out_dtype, keep_z):
        weight_split = find_split_under_grad(weight, precision)
        if keep_z:
            # Another op would name itself in its messages, and checks no scale.
            dtype = check_linear_scale_leaky_relu(
                x, weight, bias, scale, precision, out_dtype, None
            )
            # z in fp32, as inside the fused op: 16 bits would round the tail twice.
            wide = name_out(x, compute_dtype(x))
            z = linear_op(x, weight, bias, precision, None, weight_split, wide)
            y = scale_leaky_relu(z, scale, multiplier, slope)
            # Never y.to(y.dtype), which is y itself: TorchDynamo returns every intermediate from a
            # traced forward, and of an output that is there twice the gradient is lost, silently.
            return (y if y.dtype == dtype else y.to(dtype)), z
        # With a negative slope y is positive everywhere. |slope| gives the signs of v, and -y is
        # then the value of the other branch.
        y = _linear_scale_leaky_relu_op(
            x,
            weight,
            bias,
            scale,
            multiplier,
            -slope if slope < 0 else slope,
            precision,
            None,
            weight_split,
            name_out(x, out_dtype),
        )
        positive = y > 0
        if slope < 0:
            y = torch.where(positive, y, -y)
        return y, positive

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, scale, ctx.multiplier, ctx.slope, ctx.precision, _, ctx.keep_z = inputs
        _, kept = output
        ctx.compute_dtype = compute_dtype(x)
        if ctx.keep_z:
            keep_outputs(ctx, differentiable=kept)
        else:
            keep_outputs(ctx, kept)
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, bias), scale, kept)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y, grad_z=None):
        if grad_y is None and grad_z is None:
            return (None,) * 9
        x, weight, scale, kept = saved
        grad_scale = None
        with no_autocast(grad_z if grad_y is None else grad_y):
            if grad_y is not None:
                factor = find_factor(scale, ctx.multiplier, ctx.compute_dtype)
                positive = kept * factor > 0 if ctx.keep_z else kept
                grad_z = add(differentiate(grad_y, positive, factor, ctx.slope), grad_z)
                if ctx.keep_z:
                    terms = differentiate_scale(grad_y, kept, positive, ctx.multiplier, ctx.slope)
                    grad_scale = sum_to(terms, scale)
            grads = differentiate_product(ctx, grad_z, x, weight)
        return *grads, grad_scale, None, None, None, None, None
