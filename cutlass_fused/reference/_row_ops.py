"""The definitions of ops along rows, written from their descriptions."""

# ruff: noqa: F401  (the text reads what is imported here)
import torch
from torch import Tensor

from ..checks import (
    REFERENCE_DTYPES,
    check_out_dtype,
    check_rank,
    check_vector,
    check_x_dtype,
    find_out_dtype,
)
from ..epilogues._schema import make_parameters
from ..row_ops import ROW_OPS
from ..row_ops._description import RowOp
from ._arithmetic import compute_dtype, round_to
from ._epilogues import run_text

_TEMPLATE = """\
def check_{op}({tensors}, out_dtype=None, out=None):
    op = "{function}"
    check_rank(op, x)
    check_x_dtype(op, x, REFERENCE_DTYPES)
    {checks}
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_out_dtype(op, x, out_dtype)
    return out_dtype or x.dtype


def {op}(
    {parameters},
    {options}
) -> Tensor:
    dtype = check_{op}({tensors}, {named})
    return round_to({op}_formula({operands}), dtype)
"""
_OPTIONS = "out_dtype: torch.dtype | None = None,\n    out: str | None = None,"


def define(row_op: RowOp) -> None:
    """The op's definition and its checks, as functions of this module."""
    names = [vector.name for vector in row_op.vectors]
    text = _TEMPLATE.format(
        op=row_op.op,
        function=row_op.function,
        tensors=", ".join(["x", *names]),
        checks="\n    ".join(f'check_vector(op, "{v}", {v}, x, x.shape[-1])' for v in names),
        parameters=make_parameters(row_op),
        options=_OPTIONS if row_op.out_dtype else "",
        named="out_dtype, out" if row_op.out_dtype else "",
        operands=", ".join(["x.to(compute_dtype(x))", *row_op.names]),
    )
    globals()[f"{row_op.op}_formula"] = row_op.formula
    run_text(text, f"<definition of {row_op.op}>", globals())
    notes = f"\n\n{row_op.notes}" if row_op.notes else ""
    ours = globals()[row_op.op]
    ours.__doc__ = f"y = {row_op.text} over the last dimension of x: (..., N).{notes}"


for _row_op in ROW_OPS.values():
    define(_row_op)
