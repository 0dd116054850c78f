"""Functions over the raw ops: PyTorch's conventions for precision, dtypes, autocast, gradients.

The gradients are torch.autograd.Functions, entered only when a gradient can be asked for; otherwise
a call is the raw op alone. They are once differentiable: a double backward raises RuntimeError.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from ._library import ops
from .checks import check_options, check_scale
from .precision import resolve_precision
from .reference import compute_dtype, scale_leaky_relu

_linear_op = ops.linear.default
_linear_scale_leaky_relu_op = ops.linear_scale_leaky_relu.default

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """y = x @ weight.T + bias

    Args:
        x: (..., K), float16, bfloat16 or float32 (on the CPU also float64); any strides, any number
            of leading dimensions, also none.
        weight: (N, K), dtype of x; any strides.
        bias: (N,), dtype of x or float32, any stride.
        precision: what float32 inputs get. "ieee": an error no larger than that of cuBLAS in fp32;
            "tf32": no larger than that of TF32; None follows
            torch.backends.cuda.matmul.fp32_precision (torch.compile recompiles when that changes,
            torch.export keeps what it found).
        out_dtype: dtype of x or float32; None is the dtype of x.

    Returns:
        (..., N), contiguous, of `out_dtype`.

    Numerics: sums and bias in fp32 (float64 for float64 inputs), rounded once, at the end. Under
    autocast x, weight and bias are cast to its dtype first, as torch.nn.functional.linear does.
    The backward pass uses the same precision; each gradient has the dtype of its input.

    Raises:
        TypeError: x, weight or bias is not a tensor.
        NotImplementedError: forward-mode differentiation.
        ValueError: unknown precision.
        RuntimeError: shapes, dtypes or devices that do not fit; CUDA tensors where the library is
            not built or the GPU is not supported.
    """
    _check_tensors("linear", x, weight, bias)
    _refuse_forward_ad("linear")
    x, weight, bias = _cast_for_autocast(x, weight, bias)
    precision = resolve_precision(precision, "linear", x.dtype)
    if torch.is_grad_enabled() and _requires_grad(x, weight, bias):
        return _Linear.apply(x, weight, bias, precision, out_dtype)
    return _linear_op(x, weight, bias, precision, out_dtype)


def linear_scale_leaky_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: float | Tensor = 1.0,
    negative_slope: float = 0.01,
    *,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """y = leaky_relu((x @ weight.T + bias) * scale, negative_slope)

    Args:
        x: (..., K), float16, bfloat16 or float32 (on the CPU also float64); any strides, any number
            of leading dimensions, also none.
        weight: (N, K), dtype of x; any strides.
        bias: (N,), dtype of x or float32, any stride.
        scale: a number, or a tensor with one element (shape () or (1,)) or of shape (N,), dtype of
            x or float32. Any sign. A tensor stays on its device: nothing is read back. To
            torch.compile a number is a constant: pass what changes from call to call as a tensor.
        negative_slope: a number of any sign.
        precision: what float32 inputs get. "ieee": an error no larger than that of cuBLAS in fp32;
            "tf32": no larger than that of TF32; None follows
            torch.backends.cuda.matmul.fp32_precision (torch.compile recompiles when that changes,
            torch.export keeps what it found).
        out_dtype: dtype of x or float32. None is the dtype of the same expression in PyTorch: that
            of x, but float32 where a float32 scale of shape (1,) or (N,) stands beside 16-bit x.

    Returns:
        (..., N), contiguous, of `out_dtype`.

    Numerics: sums and tail in fp32 (float64 for float64 inputs), rounded once, at the end; NaN and
    infinities come out where PyTorch puts them. Under autocast x, weight and bias are cast to its
    dtype first, scale is not. The backward pass uses the same precision; each gradient has the
    dtype of its input.

    Raises:
        TypeError: x, weight or bias is not a tensor, scale neither a number nor a tensor, or
            negative_slope no number.
        NotImplementedError: forward-mode differentiation.
        ValueError: unknown precision.
        RuntimeError: shapes, dtypes or devices that do not fit; CUDA tensors where the library is
            not built or the GPU is not supported.
    """
    op = "linear_scale_leaky_relu"
    _check_tensors(op, x, weight, bias)
    _refuse_forward_ad(op)
    if not isinstance(negative_slope, _NUMBERS):
        found = type(negative_slope).__name__
        raise TypeError(f"{op}: negative_slope must be a number, got {found}")
    x, weight, bias = _cast_for_autocast(x, weight, bias)
    precision = resolve_precision(precision, op, x.dtype)
    if isinstance(scale, Tensor):
        multiplier = 1.0
        if out_dtype is None and scale.dim() > 0:
            out_dtype = torch.promote_types(x.dtype, scale.dtype)
    elif isinstance(scale, _NUMBERS):
        scale, multiplier = None, scale
    else:
        raise TypeError(f"{op}: scale must be a number or a tensor, got {type(scale).__name__}")
    if torch.is_grad_enabled() and _requires_grad(x, weight, bias, scale):
        # The gradient of scale needs z, which the fused op does not give.
        keep_z = scale is not None and scale.requires_grad
        y, _ = _LinearScaleLeakyReLU.apply(
            x, weight, bias, scale, multiplier, negative_slope, precision, out_dtype, keep_z
        )
        return y
    return _linear_scale_leaky_relu_op(
        x, weight, bias, scale, multiplier, negative_slope, precision, out_dtype
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, precision, out_dtype):
        return _linear_op(x, weight, bias, precision, out_dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.precision, _ = inputs
        ctx.save_for_backward(*_keep_for_product(ctx, x, weight, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        x, weight = ctx.saved_tensors
        with _no_autocast(grad_y):
            grads = _differentiate_product(ctx, grad_y, x, weight)
        return *grads, None, None


class _LinearScaleLeakyReLU(torch.autograd.Function):
    """Gives y and what its backward pass reads: z if `keep_z`, else the mask v > 0.

    With the mask v = z * scale * multiplier is needed nowhere. It is a tensor of its own although y
    has the same signs: it is smaller, and y, like that of PyTorch's own LeakyReLU, may be written
    to in place.
    """

    @staticmethod
    def forward(x, weight, bias, scale, multiplier, slope, precision, out_dtype, keep_z):
        if keep_z:
            # The op that checks these is not the one that is called.
            check_scale("linear_scale_leaky_relu", scale, x, weight)
            check_options("linear_scale_leaky_relu", x, precision, out_dtype)
            # z in fp32, as inside the fused op: 16 bits would round the tail twice.
            z = _linear_op(x, weight, bias, precision, compute_dtype(x))
            y = scale_leaky_relu(z, scale, multiplier, slope)
            # Never y.to(y.dtype), which is y itself: TorchDynamo returns every intermediate from a
            # traced forward, and of an output that is there twice the gradient is lost, silently.
            dtype = out_dtype or x.dtype
            return (y if y.dtype == dtype else y.to(dtype)), z
        # With a negative slope y is positive everywhere. |slope| gives the signs of v, and -y is
        # then the value of the other branch.
        y = _linear_scale_leaky_relu_op(
            x, weight, bias, scale, multiplier, -slope if slope < 0 else slope, precision, out_dtype
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
        ctx.mark_non_differentiable(kept)
        ctx.set_materialize_grads(False)  # no zeros in place of the gradient of `kept`
        ctx.save_for_backward(*_keep_for_product(ctx, x, weight, bias), scale, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y, _):
        if grad_y is None:
            return (None,) * 9
        x, weight, scale, kept = ctx.saved_tensors
        with _no_autocast(grad_y):
            factor = ctx.multiplier
            if scale is not None:
                factor = scale.to(ctx.compute_dtype) * factor
            positive = kept * factor > 0 if ctx.keep_z else kept
            # dy/dz is the factor, times the slope where v is not positive.
            grad_z = torch.where(positive, grad_y * factor, grad_y * (factor * ctx.slope))
            grads = _differentiate_product(ctx, grad_z, x, weight)
            grad_scale = None
            if ctx.keep_z:
                grad_v = torch.where(positive, grad_y, grad_y * ctx.slope)
                grad_scale = _sum_to(grad_v * kept * ctx.multiplier, scale)
        return *grads, grad_scale, None, None, None, None, None


def _keep_for_product(ctx, x: Tensor, weight: Tensor, bias: Tensor | None):
    """x and weight, each only if a gradient that is asked for reads it."""
    need_x, need_weight = ctx.needs_input_grad[:2]
    ctx.bias_dtype = None if bias is None else bias.dtype
    return x if need_weight else None, weight if need_x else None


def _differentiate_product(ctx, grad_z: Tensor, x: Tensor | None, weight: Tensor | None):
    """The gradients of x, weight and bias, those that are asked for, from that of z."""
    grad_x = grad_weight = grad_bias = None
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    rows = _flatten(grad_z)
    if need_bias:
        grad_bias = rows.sum(0, dtype=ctx.bias_dtype)
    if need_x:
        # (M, N) @ (N, K)
        grad_x = _multiply(rows.to(weight.dtype), weight, ctx.precision)
        grad_x = grad_x.reshape(*grad_z.shape[:-1], weight.shape[1])
    if need_weight:
        # (N, M) @ (M, K)
        grad_weight = _multiply(rows.to(x.dtype).t(), _flatten(x), ctx.precision)
    return grad_x, grad_weight, grad_bias


def _multiply(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b, in the precision of the forward pass.

    PyTorch's product follows its own global setting for fp32 on the GPU; the op takes an argument.
    """
    if a.is_cuda and a.dtype == torch.float32:
        return _linear_op(a, b.t(), None, precision)
    return torch.matmul(a, b)


def _sum_to(terms: Tensor, scale: Tensor) -> Tensor:
    """The sum of (..., N) terms for a scale of one element or of shape (N,)."""
    total = terms.sum() if scale.numel() == 1 else _flatten(terms).sum(0)
    return total.reshape(scale.shape).to(scale.dtype)


def _flatten(tensor: Tensor) -> Tensor:
    """(..., K) as (M, K)."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


def _check_tensors(op: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: x must be a tensor, got {type(x).__name__}")
    if not isinstance(weight, Tensor):
        raise TypeError(f"{op}: weight must be a tensor, got {type(weight).__name__}")
    if bias is not None and not isinstance(bias, Tensor):
        raise TypeError(f"{op}: bias must be a tensor or None, got {type(bias).__name__}")


def _refuse_forward_ad(op: str) -> None:
    """The ops have no forward-mode derivative, and PyTorch would take it for zero, silently."""
    # TorchDynamo cannot read the level, and does not compile forward mode.
    if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:
        raise NotImplementedError(
            f"{op}: gradients must be taken in reverse mode, got forward-mode differentiation"
        )


def _requires_grad(*tensors: Tensor | None) -> bool:
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def _no_autocast(tensor: Tensor):
    """A region without autocast: gradients are multiplied in the dtypes of the forward pass."""
    device_type = tensor.device.type
    return torch.autocast(device_type, enabled=False) if device_type != "meta" else nullcontext()


def _cast_for_autocast(x: Tensor, weight: Tensor, bias: Tensor | None):
    """Casts, with gradients, what autocast casts for torch.nn.functional.linear."""
    device_type = x.device.type
    # PyTorch raises when it is asked about autocast on the meta device.
    if device_type == "meta" or not torch.is_autocast_enabled(device_type):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(device_type)
    return _cast(x, dtype), _cast(weight, dtype), _cast(bias, dtype)


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # PyTorch's autocast leaves float64 and integers as they are.
    if tensor is None or not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(dtype)
