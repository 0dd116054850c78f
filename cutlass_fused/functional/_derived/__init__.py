"""The functions of epilogues, with their gradients, written from the descriptions.

Each is straight-line code, made once, in this module, where TorchDynamo finds what it reads. An
epilogue whose function takes other arguments than its op has a file of its own instead.
"""

# ruff: noqa: F401  (the text reads what is imported here)
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._library import ops
from ...epilogues import EPILOGUES
from ...epilogues._description import Epilogue, Number, RowOrScalar
from ...epilogues._schema import make_parameters
from ...precision import Precision, resolve_precision
from ...reference import _epilogues, compute_dtype
from ...reference._epilogues import run_text
from ...sharding import apply
from ...weights.splits import find_split, find_split_under_grad
from .._arguments import (
    check_optional_tensor,
    check_tensor,
    check_tensors,
    differentiates,
    name_out,
    no_autocast,
    read_number,
    take_matrices,
    take_scale,
)
from .._derivatives import add, differentiable, is_forward_mode, keep_outputs
from .._other_layouts import STRIDED, apply_to_rows, is_jagged, multiply_sparse
from .._product import (
    compose_product,
    differentiate_product,
    keep_for_product,
    linear_op,
    sum_to,
)
from . import native
from .documents import make_docstring
from .gradients import COMPOSED, PARTS, make_gradient
from .row_ops import derive as derive_row_op

_TEMPLATE = """\
def {function}(
    {parameters},
    *,
    precision: Precision | None = None,
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
) -> Tensor:
    {at_once}check_tensors("{function}", x, weight, bias)
    {checks}
    if x.layout is not STRIDED:
        if is_jagged(x):
            options = {{"precision": precision, "out_dtype": out_dtype}}
            options["weight_split"] = weight_split
            return apply_to_rows({function}, {matrices}, **options)
        z = multiply_sparse("{function}", x, weight, bias, precision, out_dtype)
        y = {op}_formula({of_z})
        return y if out_dtype is None else y.to(out_dtype)
    {readings}
    x, weight, bias, precision = take_matrices("{function}", x, weight, bias, precision)
    {scales}
    if is_forward_mode():
        {compose}
    if differentiates({tensors}):
        {differentiate}
    split = find_split(weight, precision, weight_split)
    return {op}_op({matrices}, precision, None, split, name_out(x, out_dtype))
"""

# The product alone takes less time than all that the others do with their arguments.
_AT_ONCE = """\
if native.takes(x, weight, bias):
        precision = resolve_precision(precision, "{function}", weight.dtype)
        return native.linear(x, weight, bias, precision, name_out(x, out_dtype))
    """


def derive(epilogue: Epilogue) -> Callable[..., Tensor]:
    """The function of this epilogue, made now."""
    op, function, names = epilogue.op, epilogue.function, epilogue.names
    vectors = [operand.name for operand in epilogue.vectors]
    checks, readings, scales = [], [], []
    for operand in epilogue.operands:
        name = operand.name
        if isinstance(operand, Number):
            readings.append(f'{name} = read_number("{function}", "{name}", {name})')
        elif isinstance(operand, RowOrScalar):
            arguments = f'"{function}", {name}, x, out_dtype, "{name}"'
            scales.append(f"{name}, out_dtype = take_scale({arguments})")
        else:
            check = "check_tensor" if operand.required else "check_optional_tensor"
            checks.append(f'{check}("{function}", "{name}", {name})')
    differentiate = PARTS if epilogue.gradient is None else make_gradient(epilogue)
    arguments = {
        "op": op,
        "function": function,
        "parameters": make_parameters(epilogue),
        "matrices": ", ".join(["x", "weight", "bias", *names]),
        "tensors": ", ".join(["x", "weight", "bias", *vectors]),
        "of_z": ", ".join(["z", *names]),
    }
    namespace = globals()
    namespace[f"{op}_op"] = getattr(ops, op).default
    namespace[f"{op}_formula"] = epilogue.formula
    namespace[f"check_{op}"] = getattr(_epilogues, f"check_{op}")
    if epilogue.gradient is not None:
        namespace[f"{op}_gradient"] = epilogue.gradient
        run_text(differentiate.text, f"<gradient of {op}>", namespace)
        differentiate = differentiate.call
    lines = {"checks": checks, "readings": readings, "scales": scales}
    lines = {name: "\n    ".join(values) for name, values in lines.items()}
    lines["compose"] = COMPOSED.format(**arguments)
    lines["differentiate"] = differentiate.format(**arguments)
    lines["at_once"] = _AT_ONCE.format(**arguments) if op == "linear" else ""
    run_text(_TEMPLATE.format(**arguments, **lines), f"<function {function}>", namespace)
    namespace[function].__doc__ = make_docstring(epilogue)
    return namespace[function]


if TYPE_CHECKING:

    def linear(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        precision: Precision | None = None,
        out_dtype: torch.dtype | None = None,
        weight_split: Tensor | None = None,
    ) -> Tensor: ...
else:
    linear = derive(EPILOGUES["linear"])
