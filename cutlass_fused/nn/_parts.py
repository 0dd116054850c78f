"""The parts of plain models: their checks, and what a batch norm tells the functions."""

import numbers
from collections.abc import Sequence
from types import MethodType

import torch
from torch.fx import Proxy
from torch.nn.modules import module as torch_module

from .. import functional
from ..checks import KERNEL_DTYPES
from ..precision import Precision
from ..sharding import find_default_group, is_sharded

PLAIN = (torch.nn.Linear, torch.nn.BatchNorm1d)
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# Classes whose parameters and buffers are what their dictionaries hold.
HOLDERS = set(PLAIN)
# Batch norms that the functions know.
NORMS = [torch.nn.BatchNorm1d, torch.nn.SyncBatchNorm]
# Those of the package that compute what a class of PyTorch does, by that class.
SAME_FORWARD = {}
_TORCH_FUNCTION = torch.Tensor.__torch_function__.__func__


def call_as_leaf(module: torch.nn.Module, x: Proxy):
    """What torch.fx records of a call of `module`: that, and nothing of what it does."""
    tracer = x.tracer
    if tracer.root is module:
        name = type(module).__name__
        raise TypeError(
            f"{name}: torch.fx must be given a model that holds this module, got itself"
        )
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (x,), {})


def has_plain_forward(module, kind: type[torch.nn.Module]) -> bool:
    """Whether `module` is a `kind` and computes what that does: neither a subclass, as one that
    quantises, nor the instance has another forward.
    """
    if not isinstance(module, kind):
        return False
    # In words that TorchDynamo can trace; it then notices a forward that an instance gets later.
    forward = module.forward
    if not isinstance(forward, MethodType):
        return False
    return forward.__func__ is kind.forward or forward.__func__ is SAME_FORWARD.get(kind)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of `module` is more than its forward: hooks may prepare the weight, as those
    of pruning, of the old spectral_norm and weight_norm and of FSDP do, or change the result.
    """
    if (
        module._forward_pre_hooks
        or module._forward_hooks
        or module._backward_pre_hooks
        or module._backward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_backward_pre_hooks
        or torch_module._global_backward_hooks
    ):
        return True  # not by bool(), which TorchDynamo does not know of hooks that are objects
    return False


def is_plain(module, kind: type[torch.nn.Module]) -> bool:
    """Whether a call of `module` is what `kind` computes from its weight, and nothing else: no hook
    runs, and the weight is no tensor of another library's making, but for a DTensor.
    """
    if not has_plain_forward(module, kind) or has_hooks(module):
        return False
    # One that is computed, as by a parametrization, is read once in a call: that may draw random
    # numbers, or move what it is computed from.
    held = module.__dict__
    return not is_foreign(held["_parameters"].get("weight", held.get("weight")))


def is_foreign(weight: torch.Tensor | None) -> bool:
    """Whether it is of another library's making, whose products are its own; a DTensor is not."""
    kind = type(weight)
    if kind is torch.nn.Parameter or weight is None:  # as nearly always
        return False
    function = getattr(kind.__torch_function__, "__func__", None)
    if hasattr(kind, "__tensor_flatten__") or function not in (None, _TORCH_FUNCTION):
        return not is_sharded(weight)
    return False


def read_parameters(module: torch.nn.Module) -> tuple:
    """Its weight and bias. Of a plain Linear or BatchNorm1d they come from the dictionary that
    holds them, since an attribute of a module takes a microsecond; another class may have a
    property of that name, as a parametrization has.
    """
    if type(module) in HOLDERS:
        parameters = module.__dict__["_parameters"]
        if "weight" in parameters and "bias" in parameters:
            return parameters["weight"], parameters["bias"]
    return module.weight, module.bias


def read_operands(gemm: torch.nn.Module, precision: Precision | None) -> tuple:
    """Weight and bias of a Linear, and what cutlass_fused.prepare left of the weight, if it is
    still of it; where it is all that is left on the GPU, what stands for the weight comes first.
    """
    weight, bias = read_parameters(gemm)
    prepared = gemm.__dict__.get("_prepared_split")
    if prepared is None:
        return weight, bias, None
    weight, split = prepared.find(weight, bias, precision)
    return weight, bias, split


def read_buffer(module: torch.nn.Module, name: str):
    """The buffer of this name, in the same way."""
    if type(module) in HOLDERS:
        buffers = module.__dict__["_buffers"]
        if name in buffers:
            return buffers[name]
    return getattr(module, name)


def read_module(module: torch.nn.Module, name: str):
    """The submodule of this name, or what stands in its place."""
    modules = module.__dict__["_modules"]
    return modules[name] if name in modules else getattr(module, name)


def check_kind(name: str, part: str, module, kind: type[torch.nn.Module]) -> None:
    """That `module`, the argument called `part`, is a `kind`. One with another forward or hooks is
    called as it is."""
    if not isinstance(module, kind):
        raise TypeError(
            f"{name}: {part} must be a torch.nn.{kind.__name__}, got {type(module).__name__}"
        )


def check_part(name: str, part: str, module, kind: type[torch.nn.Module]) -> None:
    """That `module`, of which only what it holds is taken, computes what a `kind` does, and has no
    hooks: none would run, also not one that prepares the weight, as of spectral_norm or pruning.
    """
    check_kind(name, part, module, kind)
    expected = f"{name}: {part} must be a torch.nn.{kind.__name__}"
    if not has_plain_forward(module, kind):
        found = f"{type(module).__module__}.{type(module).__qualname__}"
        raise TypeError(f"{expected} with the forward of that class, got {found} with another")
    if hooks := [hook for place in HOOKS for hook in getattr(module, place).values()]:
        found = ", ".join(getattr(hook, "__qualname__", type(hook).__name__) for hook in hooks)
        raise TypeError(f"{name}: {part} must have no hooks, which would not run, got {found}")


def check_parameters(name: str, part: str, module: torch.nn.Module) -> None:
    """That weight and bias can be shared: a parametrization computes them anew from others."""
    for key in ("weight", "bias"):
        # They are not read: that may update the parametrization.
        if key not in module._parameters:
            raise TypeError(
                f"{name}: {key} of {part} must be a torch.nn.Parameter or None, "
                f"got one that is computed, as by a parametrization"
            )


def check_linear(name: str, linear) -> None:
    check_part(name, "linear", linear, torch.nn.Linear)


def check_batch_norm(name: str, bn) -> None:
    check_part(name, "bn", bn, torch.nn.BatchNorm1d)


def check_linear_batch_norm(name: str, linear, bn) -> None:
    """Both, which are held as they are, and that the one fits behind the other."""
    check_kind(name, "linear", linear, torch.nn.Linear)
    check_kind(name, "bn", bn, torch.nn.BatchNorm1d)
    if bn.num_features != linear.out_features:
        raise ValueError(
            f"{name}: bn must have num_features = out_features of linear = {linear.out_features}, "
            f"got {bn.num_features}"
        )


def check_scale(name: str, scale, out_features: int) -> None:
    if isinstance(scale, torch.nn.Parameter):
        return check_scale_shape(name, scale.shape, out_features)
    is_number = isinstance(scale, torch.Tensor) and scale.dim() == 0
    if not is_number and not isinstance(scale, numbers.Real):
        raise TypeError(
            f"{name}: scale must be a torch.nn.Parameter or a number, got {type(scale).__name__}"
        )
    return None


def hold_scale(module: torch.nn.Module, scale, like: torch.nn.Module) -> None:
    """Sets module.scale: a Parameter itself, a number as a buffer that no state dict has."""
    if isinstance(scale, torch.nn.Parameter):
        module.scale = scale
    else:
        device = next((p.device for p in like.parameters()), None)
        module.constant_scale = float(scale)
        number = torch.tensor(module.constant_scale, dtype=torch.float32, device=device)
        module.register_buffer("scale", number, persistent=False)


def restore_scale(module: torch.nn.Module) -> torch.nn.Module:
    """Gives a number that is held as module.scale its digits back, behind a change of the dtype or
    the device: PyTorch multiplies by the number itself, in float32 or, beside float64, in that."""
    number = module.__dict__.get("constant_scale")
    if number is not None:
        wide = any(p.dtype == torch.float64 for p in module.gemm.parameters())
        dtype = torch.float64 if wide else torch.float32
        module.scale = torch.tensor(number, dtype=dtype, device=module.scale.device)
    return module


def unpack_sequential(name: str, first, kinds: tuple, optional: tuple = ()) -> tuple | None:
    """The parts of a torch.nn.Sequential of these kinds, of which the last ones may be missing;
    None where `first` is none. It is not held itself, so it must have no hooks."""
    if not isinstance(first, torch.nn.Sequential):
        return None
    check_part(name, "linear", first, torch.nn.Sequential)
    parts, most = tuple(first), (*kinds, *optional)
    fits = len(kinds) <= len(parts) <= len(most)
    if not fits or not all(map(isinstance, parts, most)):
        expected = ", ".join(kind.__name__ for kind in kinds)
        expected += "".join(f"[, {kind.__name__}]" for kind in optional)
        found = ", ".join(type(part).__name__ for part in parts)
        raise TypeError(f"{name}: a Sequential must be of ({expected}), got ({found})")
    return parts


def check_not_given(name: str, bn) -> None:
    """That there is none beside a torch.nn.Sequential, which has one."""
    if bn is not None:
        raise TypeError(
            f"{name}: bn must be None beside a Sequential, which has one, got {type(bn).__name__} "
            f"(the scale has a name: scale=...)"
        )


def find_precision(precision: Precision | None, linear) -> Precision | None:
    """That of a Linear of this package where no other is given."""
    return getattr(linear, "precision", None) if precision is None else precision


def check_scale_shape(name: str, shape: int | Sequence[int], out_features: int) -> None:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    # True and 1.0 are equal to 1.
    shapes = ((), (1,), (out_features,), (1, 1), (1, out_features))
    if sizes not in shapes or not all(map(_is_integer, sizes)):
        raise ValueError(
            f"{name}: scale_shape must be (), (1,) or (out_features,) = ({out_features},), "
            f"or such a row, (1, 1) or (1, {out_features}), got {shape!r}"
        )


def _is_integer(value) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_left_to_eager(gemm, bn, x) -> bool:
    """Whether the parts are called one by one: where x is no matrix, as (M, C, L), where another
    module has taken the place of one, as a Linear that quantises, and where one has hooks.
    """
    if isinstance(x, torch.Tensor) and x.dim() != 2:
        return True
    return not (is_plain(gemm, torch.nn.Linear) and is_plain_norm(bn))


def is_plain_norm(bn) -> bool:
    """Whether it is a batch norm that the functions know, of this process or of several."""
    return any(is_plain(bn, kind) for kind in NORMS)


def is_left_to_pytorch(v: torch.Tensor, bn) -> bool:
    """Whether PyTorch's batch norm runs: no matrix, or float64, unless that is a DTensor or on the
    CPU behind a SyncBatchNorm, for which PyTorch has none."""
    if v.dim() != 2:
        return True
    if v.dtype in KERNEL_DTYPES or is_sharded(v):
        return False
    return not (v.is_cpu and not isinstance(bn, torch.nn.BatchNorm1d))


def normalize(bn, v) -> torch.Tensor:
    """bn(v), by its own kernels where they compute the same."""
    if is_left_to_pytorch(v, bn) or not is_plain_norm(bn):
        return bn(v)
    return functional.batch_norm(v, **collect_statistics(bn))


def multiply(gemm, x, precision: Precision | None) -> torch.Tensor:
    """gemm(x), in this precision; another module in its place is called as it is, and so is one
    with hooks."""
    if not is_plain(gemm, torch.nn.Linear):
        return gemm(x)
    weight, bias, split = read_operands(gemm, precision)
    return functional.linear(x, weight, bias, precision=precision, weight_split=split)


def collect_statistics(bn: "torch.nn.BatchNorm1d | torch.nn.SyncBatchNorm") -> dict:
    """The arguments that the functions take from a batch norm, decided as its own forward does.

    The statistics are those of the batch in training, and where there are no running ones. The
    running ones are updated in training only, and only if they are tracked. In training those of a
    SyncBatchNorm are merged over its group.
    """
    training, (gamma, beta) = bn.training, read_parameters(bn)
    running_mean = read_buffer(bn, "running_mean")
    running_var = read_buffer(bn, "running_var")
    momentum, count = bn.momentum, None
    if training:
        if bn.track_running_stats:
            count = bn.num_batches_tracked
        else:
            running_mean = running_var = None
        if momentum is None and count is None:
            momentum = 0.0  # PyTorch's: without a count nothing moves
    is_synchronized = training and not isinstance(bn, torch.nn.BatchNorm1d)
    group = {"process_group": find_default_group(bn.process_group)} if is_synchronized else {}
    return group | {
        "running_mean": running_mean,
        "running_var": running_var,
        "gamma": gamma,
        "beta": beta,
        "training": training or (running_mean is None and running_var is None),
        "momentum": momentum,
        "eps": bn.eps,
        "num_batches_tracked": count,
    }


def describe_precision(precision: Precision | None) -> str:
    return "" if precision is None else f", precision={precision!r}"
