"""Which nodes may stand in a chain behind a product, and how each is written in its function."""

import inspect
import operator

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional as F

from ...nn._parts import has_hooks

# Modules of which the attributes say all, and which draw no random numbers.
ACTIVATIONS = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU),
    *(nn.Mish, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid),
    *(nn.Softplus, nn.Softsign, nn.Tanhshrink, nn.Hardshrink, nn.Softshrink, nn.Threshold),
)
_ROWS = (nn.Softmax, nn.LogSoftmax, nn.Softmin)
_WINDOWS = (nn.AvgPool1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)
# ... and those with parameters: how a function calls them, and of which attributes.
_WITH_PARAMETERS = {
    nn.LayerNorm: (F.layer_norm, ("weight", "bias"), lambda m: (m.normalized_shape,), True),
    nn.RMSNorm: (F.rms_norm, ("weight",), lambda m: (m.normalized_shape,), True),
    nn.GroupNorm: (F.group_norm, ("weight", "bias"), lambda m: (m.num_groups,), True),
    nn.PReLU: (torch.prelu, ("weight",), lambda m: (), False),
}
# Along all behind the second dimension, as a layer norm of that.
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_KNOWN = {*ACTIVATIONS, *_ROWS, *_WINDOWS, *_WITH_PARAMETERS, *_INSTANCE_NORMS}

_DROPOUTS = {
    *(F.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.dropout1d, F.dropout2d, torch.dropout),
    *(F.rrelu, torch.rrelu, torch.bernoulli, F.gumbel_softmax, torch.rand_like, torch.randn_like),
    *(torch.randint_like, torch.normal, torch.poisson, torch.multinomial),
}
_DROPOUT_MODULES = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    nn.FeatureAlphaDropout,
)
_BATCH_NORMS = {F.batch_norm, torch.batch_norm, F.instance_norm, F.local_response_norm}
_OTHERS = {
    *("to", "float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as"),
    *("cuda", "cpu", "numpy", "item", "tolist", "backward"),
    *("register_hook", "retain_grad", "requires_grad_", "data", "grad", "bernoulli", "bernoulli_"),
    *("normal_", "uniform_", "random_", "exponential_", "size", "dim", "numel", "share_memory_"),
}
_SIZES = {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "is_cuda", "requires_grad"}
_INPLACE = {
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow),
    *(operator.ifloordiv, operator.imod, operator.iand, operator.ior, operator.setitem),
    *(operator.imatmul, operator.ixor),
}
# Of elements alone, whatever the dimensions.
_POINTWISE = {
    *("add", "sub", "mul", "div", "truediv", "true_divide", "multiply", "divide", "subtract"),
    *("neg", "negative", "abs", "pow", "square", "sqrt", "rsqrt", "reciprocal", "exp", "exp2"),
    *("expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "floor", "ceil"),
    *("round", "trunc", "sign", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu"),
    *("silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "softplus", "logsigmoid", "tanh"),
    *("softsign", "tanhshrink", "hardshrink", "softshrink", "threshold", "clamp", "clamp_min"),
    *("clamp_max", "clip", "maximum", "minimum", "where", "lerp", "addcmul", "addcdiv", "rsub"),
    *("fmod", "remainder", "atan2", "lt", "le", "gt", "ge", "eq", "ne", "logaddexp", "iadd"),
    *("isub", "imul", "itruediv", "masked_fill", "nan_to_num", "frac", "copysign", "hypot"),
}
_ALONG_LAST = {
    *(
        "softmax",
        "log_softmax",
        "softmin",
        "sum",
        "mean",
        "amax",
        "amin",
        "logsumexp",
        "var",
        "std",
    ),
    *("max", "min", "normalize"),
}
_OF_LAST = {F.layer_norm, F.rms_norm, torch.layer_norm, torch.rms_norm}


def find_name(node: Node) -> str:
    """What the node calls, as a report says it."""
    if node.op == "call_module":
        return type(node.meta["module"]).__name__
    if node.target is getattr:
        return str(node.args[1])
    return getattr(node.target, "__name__", str(node.target)).strip("_")


def is_known_module(module: nn.Module) -> bool:
    """Whether its class and attributes say what a call computes."""
    if isinstance(module, _INSTANCE_NORMS) and (module.affine or module.track_running_stats):
        return False
    if type(module) not in _KNOWN or has_hooks(module) or "forward" in module.__dict__:
        return False
    # A weight may be a buffer, or none of either.
    _, names, *_ = _WITH_PARAMETERS.get(type(module), (None, ()))
    return all(name in module._parameters for name in names)


def is_batch_norm(node: Node) -> bool:
    if node.op != "call_module" or type(node.meta["module"]) is not nn.BatchNorm1d:
        return False
    module = node.meta["module"]
    if has_hooks(module) or "forward" in module.__dict__:
        return False
    return "weight" in module._parameters and "bias" in module._parameters


def is_dropout(node: Node) -> bool:
    """Whether it is a module of PyTorch's that drops elements in training."""
    return node.op == "call_module" and type(node.meta["module"]) in _DROPOUT_MODULES


def is_idle_dropout(node: Node) -> bool:
    """Whether it drops nothing, and gives the tensor that it is given."""
    if is_dropout(node):
        module = node.meta["module"]
        is_plain = not has_hooks(module) and "forward" not in module.__dict__
        return not module.training and is_plain and len(node.args) == 1 and not node.kwargs
    if node.op != "call_function" or node.target is not F.dropout:
        return False
    return _find_argument(node, "training") is False and bool(node.args)


def find_obstacle(node: Node) -> str | None:
    """Why a node cannot stand in a chain; None: what it computes decides."""
    name = find_name(node)
    if is_idle_dropout(node):
        return None
    if node.op == "call_module":
        module = node.meta["module"]
        if is_batch_norm(node) or is_known_module(module):
            one = len(node.args) == 1 and not node.kwargs
            return None if one else f"{name} is called with other arguments than one"
        if has_hooks(module):
            return f"{name} has hooks"
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return "dropout stays PyTorch's"
        return f"{name} is a module that no chain holds"
    if node.op == "call_function":
        if node.target in _DROPOUTS:
            return "dropout stays PyTorch's"
        if node.target in _BATCH_NORMS:
            return f"{name} is a function, not a torch.nn.BatchNorm1d"
        if node.target is operator.setitem or node.kwargs.get("out") is not None:
            return f"{name} writes to a tensor"
        if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return f"{name} is an op that no chain holds"
    elif node.op != "call_method":
        return f"{name} calls nothing"
    if name == "nan_to_num" and not _gives_all(node, ("nan", "posinf", "neginf")):
        return f"{name} asks for the largest number of a dtype"
    if node.op == "call_method" and node.target in _OTHERS:
        return f"{name} is no arithmetic of elements or rows"
    if node.kwargs.get("dtype") is not None:
        return f"{name} changes the dtype"
    return None


def _gives_all(node: Node, names: tuple[str, ...]) -> bool:
    """Whether behind the tensor it is given these arguments, which are numbers."""
    given = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
    return all(given.get(name) is not None for name in names)


def is_size(node: Node) -> bool:
    """Whether a node gives a size or another property, and no tensor."""
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in _SIZES
    if node.op == "call_method" and node.target in _SIZES:
        return True
    if node.op == "call_function" and getattr(node.target, "__module__", "") == "_operator":
        inputs = node.all_input_nodes
        return bool(inputs) and all(map(is_size, inputs))
    return False


def writes(node: Node) -> bool:
    """Whether a node writes to a tensor that it is given."""
    if is_idle_dropout(node):
        return False
    if node.op == "call_module":
        return bool(getattr(node.meta["module"], "inplace", False))
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    if node.op != "call_function":
        return False
    if node.target in _INPLACE or node.kwargs.get("inplace"):
        return True
    if node.kwargs.get("out") is not None:
        return True
    name = getattr(node.target, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        return True
    return bool(_find_argument(node, "inplace"))


def is_view(node: Node) -> bool:
    """Whether its result costs nothing behind a product."""
    if is_idle_dropout(node):
        return True
    return find_name(node) in ("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten")


def is_barrier(node: Node) -> bool:
    """Whether a product may not move past it: it may change what the product reads."""
    if writes(node):
        return True
    if node.op == "call_module":
        module = node.meta["module"]
        return has_hooks(module) or not type(module).__module__.startswith("torch.nn.modules.")
    kinds = (
        torch._ops.OpOverload,
        torch._ops.OpOverloadPacket,
        torch.autograd.function.FunctionMeta,
    )
    return isinstance(node.target, kinds)


def needs_matrix(node: Node) -> bool:
    """Whether what it computes of (M, N) it need not compute of (..., N)."""
    if is_idle_dropout(node):
        return False
    if node.op == "call_module":
        module = node.meta["module"]
        if isinstance(module, _ROWS):
            return module.dim != -1
        return not isinstance(module, (*ACTIVATIONS, nn.LayerNorm, nn.RMSNorm))
    if node.target in _OF_LAST:
        return False
    name = find_name(node)
    if name in _ALONG_LAST:
        dim = _find_dim(node)
        return dim not in (-1, (-1,), [-1])
    return name not in _POINTWISE


def is_along_rows(node: Node) -> bool:
    """Whether it computes along a row, and not element by element."""
    if node.op == "call_module":
        module = node.meta["module"]
        norms = nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, *_INSTANCE_NORMS
        return isinstance(module, (*_ROWS, *_WINDOWS, *norms))
    return node.target in {*_OF_LAST, F.group_norm} or find_name(node) in _ALONG_LAST


def _find_dim(node: Node):
    if "dim" in node.kwargs:
        return node.kwargs["dim"]
    if node.target is F.normalize:
        return node.args[2] if len(node.args) > 2 else 1
    return node.args[1] if len(node.args) > 1 else None


def _find_argument(node: Node, name: str):
    try:
        return inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get(name)
    except (TypeError, ValueError):
        return None


def read_numbers(module: nn.Module) -> list[tuple[dict, str, object]]:
    """The attributes of a known module that say what it computes."""
    held = module.__dict__
    return [(held, name, held[name]) for name in held if not name.startswith("_")]


class Held:
    """Parameters and buffers of modules in a chain, which a function takes as operands."""

    def __init__(self) -> None:
        self.found: list[tuple[nn.Module, str, str]] = []  # module, place, name

    def name(self, module: nn.Module, place: str, name: str) -> str | None:
        if module.__dict__[place].get(name) is None:
            return None
        each = module, place, name
        if each not in self.found:
            self.found.append(each)
        return f"h{self.found.index(each)}"


def write_module(text, node: Node, held: Held, uses_batch: bool, is_composed: bool) -> str:
    """The call of a module in a chain, by functions of tensors; is_composed: by those that tell the
    dtype of its result, and not by what a program can have."""
    module, value = node.meta["module"], text.write(node.args[0])
    if is_idle_dropout(node):
        return value
    if type(module) is nn.BatchNorm1d:
        return _write_batch_norm(module, value, text, held, uses_batch, is_composed)
    if isinstance(module, _INSTANCE_NORMS):
        options = f"{value}.shape[2:], None, None, {text.bind(module.eps)}"
        return f"{text.bind(F.layer_norm)}({value}, {options})"
    if type(module) not in _WITH_PARAMETERS:
        return f"{text.bind(type(module).forward)}({text.bind(module)}, {value})"
    function, names, numbers, has_eps = _WITH_PARAMETERS[type(module)]
    parts = [value, *map(text.bind, numbers(module))]
    parts += [held.name(module, "_parameters", name) or "None" for name in names]
    parts += [text.bind(module.eps)] if has_eps else []
    return f"{text.bind(function)}({', '.join(parts)})"


def _write_batch_norm(module, value: str, text, held, uses_batch: bool, is_composed: bool) -> str:
    affine = [held.name(module, "_parameters", name) for name in ("weight", "bias")]
    names = ("running_mean", "running_var")
    mean, variance = (None if uses_batch else held.name(module, "_buffers", n) for n in names)
    if uses_batch or is_composed:
        # Of 16 bits it gives 16 bits, beside statistics of fp32 too.
        options = ", ".join(map(str, (mean, variance, *affine, uses_batch, 0.0)))
        return f"{text.bind(F.batch_norm)}({value}, {options}, {text.bind(module.eps)})"
    rstd = f"{text.bind(torch.rsqrt)}({variance} + {text.bind(module.eps)})"
    found = f"({value} - {mean}) * {rstd}"
    found += f" * {affine[0]}" if affine[0] else ""
    return found + (f" + {affine[1]}" if affine[1] else "")
