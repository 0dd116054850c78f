"""Whether a chain is one that a program can be made of, found before any call."""

from ..programs.operands import COLUMN, ROW, SCALAR, TILE
from ..programs.tracing.trace import Refusal
from .recorded.functions import Functions
from .recorded.products import read_attribute
from .recorded.regions import Region


def check_program(epilogue, region: Region, functions: Functions) -> None:
    """Raises Refusal. A result of another module counts as one of (M, N), which a call may find to
    be otherwise."""
    weight = region.product.find_weight()
    if weight is None or weight.dim() != 2:
        raise Refusal("the shape of the weight is not known before a call")
    n = weight.shape[0]
    tensors = [read_attribute(node) for node in region.inputs]
    tensors += [module.__dict__[place][name] for module, place, name in functions.held]
    has_bias = region.product.bias is not None
    if region.product.module is not None:
        has_bias = region.product.module._parameters.get("bias") is not None
    given = {name: _find_kind(t, n) for name, t in zip(functions.names, tensors, strict=True)}
    given["bias"] = (ROW, 1) if has_bias else None
    key = tuple((name, given[name]) for name in epilogue.traced.operands)
    if epilogue.traced.find(key, n).is_tuple:
        raise Refusal("it gives several tensors")


def _find_kind(tensor, n: int) -> tuple[str, int]:
    if tensor is None:
        return TILE, 2
    if not tensor.is_floating_point():
        raise Refusal("it computes with integers or truths of a module")
    shape = tuple(tensor.shape)
    dimensions = min(len(shape), 2)
    if all(size == 1 for size in shape):
        return SCALAR, dimensions
    if shape[-1] == n and all(size == 1 for size in shape[:-1]):
        return ROW, dimensions
    if len(shape) == 2:
        return (COLUMN if shape[1] == 1 else TILE), 2
    raise Refusal(f"it computes with a parameter of shape {shape}")
