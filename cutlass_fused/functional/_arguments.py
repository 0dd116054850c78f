"""What the functions do with their arguments before an op sees them."""

import math
import numbers
from contextlib import nullcontext

import torch
from torch import Tensor

from ..checks import REFERENCE_DTYPES, check_linear_batch_norm, check_updated
from ..precision import resolve_precision
from ..reference import compute_dtype
from ..weights import accumulated
from ._derivatives import asks_outside
from ._other_layouts import STRIDED, check_sparse

_LARGEST_FP32 = torch.finfo(torch.float32).max
# numbers.Real has NumPy's among them.
_OPTIONAL = (Tensor, type(None))
NUMBERS = (int, float, numbers.Real, torch.SymInt, torch.SymFloat)


def check_x(op: str, x) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: x must be a tensor, got {type(x).__name__}")


def check_tensor(op: str, name: str, value) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor, got {type(value).__name__}")


def check_tensors(op: str, x, weight, bias) -> None:
    if isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(bias, _OPTIONAL):
        return  # as nearly always
    check_x(op, x)
    check_tensor(op, "weight", weight)
    check_optional_tensor(op, "bias", bias)


def take_matrices(
    op: str, x: Tensor, weight: Tensor, bias: Tensor | None, precision: str | None
) -> tuple[Tensor, Tensor, Tensor | None, str]:
    """The matrices and the bias as an op takes them, cast with gradients where autocast casts them
    for torch.nn.functional.linear, and the precision by its word."""
    if is_autocast_enabled(x):
        accumulated.refuse_recorded_buffer(weight)
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = _cast(x, dtype), _cast(weight, dtype), _cast(bias, dtype)
    # Beside a float32 weight x of 16 bits has as many digits.
    return x, weight, bias, resolve_precision(precision, op, weight.dtype)


def take_scale(
    op: str,
    scale: "float | Tensor | None",
    x: Tensor,
    out_dtype: torch.dtype | None,
    name: str = "scale",
) -> tuple[Tensor | None, torch.dtype | None]:
    """A scale as an op takes it, and the dtype of the result."""
    scale = make_scale(op, scale, x, name)
    return scale, promote_with_scale(x, scale, out_dtype)


def check_optional_tensor(op: str, name: str, value) -> None:
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor or None, got {type(value).__name__}")


def check_batch_norm(
    op: str,
    running_mean,
    running_var,
    num_batches_tracked,
    gamma,
    beta,
    training: bool,
    eps: float,
) -> None:
    if not (
        isinstance(running_mean, _OPTIONAL)
        and isinstance(running_var, _OPTIONAL)
        and isinstance(num_batches_tracked, _OPTIONAL)
        and isinstance(gamma, _OPTIONAL)
        and isinstance(beta, _OPTIONAL)
    ):
        check_optional_tensor(op, "running_mean", running_mean)
        check_optional_tensor(op, "running_var", running_var)
        check_optional_tensor(op, "num_batches_tracked", num_batches_tracked)
        check_optional_tensor(op, "gamma", gamma)
        check_optional_tensor(op, "beta", beta)
    if requires_grad(running_mean, running_var):
        name = "running_mean" if requires_grad(running_mean) else "running_var"
        raise RuntimeError(f"{op}: {name} must not require a gradient, got requires_grad=True")
    if not eps > 0:
        raise ValueError(f"{op}: eps must be positive, got {eps}")
    if not training and (running_mean is None or running_var is None):
        raise ValueError(f"{op}: running_mean and running_var must be given unless training")


def check_rows(op: str, x: Tensor, weight: Tensor | None = None) -> None:
    """Raise ValueError, in PyTorch's words, for a batch of one: of x, or of x @ weight.T."""
    if weight is not None and weight.dim() != 2:
        return  # the op says so
    if x.dim() == 2 and x.size(0) == 1:
        columns = x.shape[1] if weight is None else weight.shape[0]
        raise ValueError(
            f"{op}: Expected more than 1 value per channel when training, "
            f"got input size torch.Size([1, {columns}])"
        )


def check_parts(
    op: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tracked: tuple,
    affine: tuple,
    training: bool,
    momentum: float | None,
    out_dtype: torch.dtype | None,
    may_mix: bool,
) -> None:
    """Where the parts of a function run one by one, which would refuse these in their own names."""
    if x.layout is not STRIDED:
        check_sparse(op, x)
    options = ("ieee", out_dtype)  # the precision has been checked
    check_linear_batch_norm(op, x, weight, bias, None, *tracked[:2], *affine, *options, may_mix)
    if training:
        check_rows(op, x, weight)
        check_updated(op, tracked[2], momentum, *tracked[:2], x)


def read_number(op: str, name: str, value):
    """A number as one of Python's; a tensor of no dimension counts as one, as in PyTorch."""
    if type(value) is float or isinstance(value, (int, float, torch.SymInt, torch.SymFloat)):
        return value
    if isinstance(value, Tensor) and value.dim() == 0:
        return value.item()
    if isinstance(value, numbers.Real):
        return float(value)
    if is_traced_numpy(value):
        return torch.as_tensor(value).item()
    raise TypeError(f"{op}: {name} must be a number, got {type(value).__name__}")


def requires_grad(*tensors: Tensor | None) -> bool:
    """Whether a gradient can be asked for: it is enabled and one of the tensors wants one."""
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            _refuse_trace()
            return True
    # Within torch.func's transforms.
    if torch._C._are_functorch_transforms_active():
        if torch.compiler.is_dynamo_compiling():
            # TorchDynamo sees no requires_grad there, and the gradient would be 0.
            torch._dynamo.graph_break("cutlass_fused within a transform of torch.func runs eagerly")
        return any(tensor is not None and asks_outside(tensor) for tensor in tensors)
    return False


def _refuse_trace() -> None:
    """A trace holds no torch.autograd.Function: what is traced would have lost its gradients."""
    if not torch.compiler.is_compiling() and torch._C._is_tracing():
        raise RuntimeError(
            "cutlass_fused: torch.jit.trace must be called under torch.no_grad(), since a trace "
            "has no gradients, got gradients enabled"
        )


def differentiates(*tensors: Tensor | None) -> bool:
    """requires_grad, but not while torch.export looks: its program of a model in eval is to run."""
    # TorchDynamo takes is_exporting() for true wherever it traces (torch 2.11).
    return not torch.compiler._is_exporting_flag and requires_grad(*tensors)


def name_out(x: Tensor, out_dtype: torch.dtype | None) -> str | None:
    """How an op is told out_dtype: by name, and not at all where it is the dtype of x. In an
    AOTInductor package of torch 2.11 a dtype arrives as another one."""
    if out_dtype is None or out_dtype == x.dtype:
        return None
    return str(out_dtype).removeprefix("torch.")


def promote_with_scale(
    x: Tensor, scale: Tensor | None, out_dtype: torch.dtype | None
) -> torch.dtype | None:
    """out_dtype, or where it is None that of `z * scale` in PyTorch."""
    if out_dtype is None and scale is not None and scale.dim() > 0:
        if scale.dtype == x.dtype or x.dtype not in REFERENCE_DTYPES:
            return x.dtype  # which the op refuses if it is another
        return torch.promote_types(x.dtype, scale.dtype)
    return out_dtype


def read_momentum(op: str, momentum):
    try:
        return None if momentum is None else read_number(op, "momentum", momentum)
    except TypeError as error:
        raise TypeError(str(error).replace("a number", "a number or None")) from None


def make_scale(
    op: str, scale: "float | Tensor | None", x: Tensor, name: str = "scale"
) -> Tensor | None:
    """A number as a tensor beside x, made there: no copy from the host that would wait. Integers
    and narrower numbers in the dtype of x, those of no dimension in any, as PyTorch promotes them;
    (1, N) beside a matrix as (N,)."""
    if scale is None:
        return None
    if isinstance(scale, Tensor):
        if scale.dim() == 0 and scale.is_cpu and not x.is_cpu:
            scale = scale.to(x.device, non_blocking=True)  # the host waits for no kernel
        if scale.dtype == x.dtype and scale.dim() < 2:
            return scale
        is_integer = not (scale.is_floating_point() or scale.is_complex())
        if is_integer or scale.dtype.itemsize < min(x.dtype.itemsize, 4):
            scale = scale.to(x.dtype)
        elif scale.dim() == 0 and not scale.is_complex():
            scale = scale.to(compute_dtype(x))  # it counts as a number
        if scale.dim() == 2 and x.dim() == 2 and scale.shape[0] == 1:
            return scale.reshape(scale.shape[1])
        return scale
    if isinstance(scale, NUMBERS):
        if torch.compiler.is_dynamo_compiling() and varies(scale):
            # A product is one of the few words for this that torch.compile makes one of tensors.
            return torch.ones((), dtype=compute_dtype(x), device=x.device) * scale
        return torch.full((), float_of(scale), dtype=compute_dtype(x), device=x.device)
    if is_traced_numpy(scale):
        return torch.as_tensor(scale, dtype=compute_dtype(x), device=x.device)
    raise TypeError(f"{op}: {name} must be a number or a tensor, got {type(scale).__name__}")


def is_traced_numpy(value) -> bool:
    """Whether TorchDynamo, which traces, sees a number of NumPy's: to it that is an array."""
    return torch.compiler.is_dynamo_compiling() and hasattr(value, "dtype") and value.ndim == 0


def varies(number) -> bool:
    """Whether TorchDynamo, which traces, does so for every value of this number, as it does where
    one has changed between two calls. As an argument of an op it would be a constant again, and
    each value would have a graph of its own."""
    return not torch.fx.experimental.symbolic_shapes.has_static_value(number)


def float_of(scale):
    """A number for torch.full: one of NumPy's as Python's; what fp32 has not is infinite there."""
    if isinstance(scale, (torch.SymInt, torch.SymFloat)):
        return scale
    scale = float(scale)
    return (
        scale if abs(scale) <= _LARGEST_FP32 or scale != scale else math.copysign(math.inf, scale)
    )


def scales_rows(scale: Tensor | None, x: Tensor, weight: Tensor) -> bool:
    """Whether a scale differs from row to row, as one of shape (M, 1) or (M, N) does: then PyTorch
    multiplies z by it, as in the plain model."""
    if scale is None or scale.dim() < 2 or scale.dim() > x.dim() or weight.dim() != 2:
        return False
    shape = (*x.shape[:-1], weight.shape[0])[x.dim() - scale.dim() :]
    return all(size in (1, full) for size, full in zip(scale.shape, shape, strict=True))


def no_autocast(tensor: Tensor):
    """A region without autocast: gradients are multiplied in the dtypes of the forward pass."""
    device_type = tensor.device.type
    return torch.autocast(device_type, enabled=False) if device_type != "meta" else nullcontext()


def softmax_dtype(x: Tensor, out_dtype: torch.dtype | None) -> torch.dtype | None:
    """out_dtype, or where it is None that of a softmax under autocast: float32, but on CPUs."""
    if out_dtype is None and x.device.type != "cpu" and is_autocast_enabled(x):
        return torch.promote_types(x.dtype, torch.float32)
    return out_dtype


def is_autocast_enabled(x: Tensor) -> bool:
    """On the device of x."""
    # PyTorch raises when it is asked about autocast on the meta device.
    if x.is_cuda:  # which takes less time than the name of the device
        return torch.is_autocast_enabled("cuda")
    device_type = x.device.type
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # PyTorch's autocast leaves float64 and integers as they are.
    if tensor is None or not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(dtype)
