"""The functions of ops along rows, with their gradients, written from the descriptions.

Each is straight-line code, made once, in this module, where TorchDynamo finds what it reads. An op
whose function takes other arguments has a file of its own, which calls the one that is made here.
"""

# ruff: noqa: F401  (the text reads what is imported here)
from collections.abc import Callable

import torch
from torch import Tensor

from ..._library import ops
from ...checks import refuse_kind
from ...epilogues._description import Number
from ...epilogues._schema import make_parameters
from ...reference import _row_ops, compute_dtype
from ...reference._arithmetic import round_to
from ...reference._epilogues import run_text
from ...row_ops._description import RowOp
from ...sharding import apply
from .._arguments import (
    check_optional_tensor,
    check_tensor,
    check_x,
    differentiates,
    name_out,
    no_autocast,
    read_number,
    softmax_dtype,
)
from .._derivatives import differentiable, is_forward_mode
from .._other_layouts import STRIDED, apply_to_rows, is_jagged
from .._product import sum_to
from .documents import describe, wrap

_FUNCTION = """\
def {function}(
    {parameters},
    {options}
) -> Tensor:
    check_x("{function}", x)
    {checks}
    if x.layout is not STRIDED:
        if is_jagged(x):
            return apply_to_rows({function}, {arguments}, {named})
        refuse_kind("{function}", "x", x)
    {readings}
    if is_forward_mode():
        {compose}
    if differentiates({tensors}):
        {differentiate}
    return {op}_op({arguments}{out})
"""
_OPTIONS = "*,\n    out_dtype: torch.dtype | None = None,"
# In forward mode, and where a description has no gradient: its formula, by PyTorch.
_FORMULA = """\
dtype = check_{op}({tensors}, {named})
        return round_to({op}_formula(x.to(compute_dtype(x)), {names}), dtype)"""
_CLASS = """\
class {kind}(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward({arguments}, {out_argument}):
        return {op}_op({arguments}{out_option})

    @staticmethod
    def setup_context(ctx, inputs, output):
        {inputs}, {no_out} = inputs
        ctx.x_dtype = x.dtype
        ctx.save_for_backward({saved},)

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y):
        {results} = {none}
        {saved}, = saved
        {widen}
        {backward}
        return {results} {none_of_out}
"""
_DOCUMENT = """\
y = {text}, over the last dimension
{notes}
    Args:
        x: (..., N), float16, bfloat16 or float32 (on the CPU also float64); any strides, at least
            one dimension. A nested x of jagged layout and its result have the same offsets.
{operands}

    Returns:
        The shape of x, contiguous, of {dtype}.

    Numerics: fp32 inside (float64 for float64 inputs), rounded once, at the end. Each gradient has
    the dtype of its input.

    Raises:
{type_error}
        RuntimeError: shapes, dtypes, layouts or devices that do not fit; torch.jit.trace with a
            gradient to record; CUDA tensors where the library is not built or the GPU is not
            supported.
    """
_OUT_DTYPE = """\
        out_dtype: dtype of x or float32. None is the dtype of x, but float32 under autocast on a
            GPU."""


def derive(row_op: RowOp) -> Callable[..., Tensor]:
    """The function of this op, made now."""
    op, function, names = row_op.op, row_op.function, row_op.names
    checks, readings = [], []
    for operand in row_op.operands:
        name = operand.name
        if isinstance(operand, Number):
            readings.append(f'{name} = read_number("{function}", "{name}", {name})')
        else:
            check = "check_tensor" if operand.required else "check_optional_tensor"
            checks.append(f'{check}("{function}", "{name}", {name})')
    if row_op.out_dtype:
        readings.append("out_dtype = softmax_dtype(x, out_dtype)")
    kind = "_" + "".join(map(str.capitalize, op.split("_")))  # profilers show it
    parts = {
        "op": op,
        "function": function,
        "kind": kind,
        "arguments": ", ".join(["x", *names]),
        "names": ", ".join(names),
        "tensors": ", ".join(["x", *(vector.name for vector in row_op.vectors)]),
        "named": "out_dtype=out_dtype" if row_op.out_dtype else "",
        "out": ", None, name_out(x, out_dtype)" if row_op.out_dtype else "",
    }
    namespace = globals()
    namespace[f"{op}_op"] = getattr(ops, op).default
    namespace[f"{op}_formula"] = row_op.formula
    namespace[f"check_{op}"] = getattr(_row_ops, f"check_{op}")
    compose = differentiate = _FORMULA.format(**parts)
    if row_op.gradient is not None:
        namespace[f"{op}_gradient"] = row_op.gradient
        run_text(_write_gradient(row_op, parts), f"<gradient of {op}>", namespace)
        out = ", name_out(x, out_dtype)" if row_op.out_dtype else ""
        differentiate = f'return apply("{op}", {kind}, ({parts["arguments"]},{out[1:]}))'
    text = _FUNCTION.format(
        **parts,
        parameters=make_parameters(row_op),
        options=_OPTIONS if row_op.out_dtype else "",
        checks="\n    ".join(checks),
        readings="\n    ".join(readings),
        compose=compose,
        differentiate=differentiate,
    )
    run_text(text, f"<function {function}>", namespace)
    namespace[function].__doc__ = make_docstring(row_op)
    return namespace[function]


def _write_gradient(row_op: RowOp, parts: dict[str, str]) -> str:
    gradient, names = row_op.gradient, row_op.names
    numbers = {operand.name for operand in row_op.operands if isinstance(operand, Number)}
    values = [f"ctx.{name}" if name in numbers else name for name in names]
    read = "output" if gradient.reads == "y" else "x"
    arguments = ", ".join(["grad_y", read, *values])
    op, backward = row_op.op, ["if ctx.needs_input_grad[0]:"]
    backward.append(f"    grad_x = {op}_gradient.x({arguments}).to(ctx.x_dtype)")
    for i, name in enumerate(names, start=1):
        if name in gradient.operands:
            terms = f'{op}_gradient.operands["{name}"]({arguments})'
            backward.append(f"if ctx.needs_input_grad[{i}]:")
            backward.append(f"    grad_{name} = sum_to({terms}, {name})")
    indent = "\n        "
    widen = [f"{name} = {name}.to(compute_dtype({name}))" for name in ("grad_y", read)]
    if gradient.in_fp32:
        backward = ["with no_autocast(grad_y):", *(f"    {line}" for line in backward)]
    results = ["grad_x", *(f"grad_{name}" for name in names)]
    return _CLASS.format(
        **parts,
        out_argument="out" if row_op.out_dtype else "",
        out_option=", None, out" if row_op.out_dtype else "",
        no_out="_" if row_op.out_dtype else "",
        inputs=", ".join(["x", *values]),
        saved=", ".join([read, *(vector.name for vector in row_op.vectors)]),
        results=", ".join(results) + ",",
        none=f"(None,) * {len(results)}",
        none_of_out="None" if row_op.out_dtype else "",
        widen=indent.join(widen) if gradient.in_fp32 else "",
        backward=indent.join(backward),
    )


def make_docstring(row_op: RowOp) -> str:
    notes = "".join(f"    {line}\n" for line in row_op.notes.splitlines())
    operands = [describe(operand) for operand in row_op.operands]
    if row_op.out_dtype:
        operands.append(_OUT_DTYPE)
    *first, last = ["x", *(vector.name for vector in row_op.vectors)]
    type_error = f"{', '.join(first)} or {last} is not a tensor" if first else "x is not a tensor"
    numbers = [operand.name for operand in row_op.operands if isinstance(operand, Number)]
    type_error += "".join(f", or {name} no number" for name in numbers)
    text = _DOCUMENT.format(
        text=row_op.text,
        notes=f"\n{notes}" if notes else "",
        operands="\n".join(operands),
        dtype="`out_dtype`" if row_op.out_dtype else "its dtype",
        type_error=wrap(f"TypeError: {type_error}.", 8),
    )
    return text.replace("offsets.\n\n\n", "offsets.\n\n")
