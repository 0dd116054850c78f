"""The definitions of ops with an epilogue, written from their descriptions.

Each is straight-line code, made once. A function of its checks stands beside it, for the gradients
that compute z themselves.
"""

import linecache
import re

# ruff: noqa: F401  (the text reads what is imported here)
import torch
from torch import Tensor

from ..checks import (
    check_matrices,
    check_options,
    check_row_or_scalar,
    check_vector,
    find_out_dtype,
)
from ..epilogues import EPILOGUES
from ..epilogues._description import BIAS, Epilogue, RowOrScalar
from ..epilogues._schema import make_parameters
from ._arithmetic import product, round_to

_TEMPLATE = """\
def check_{op}(x, weight, {vectors}, precision, out_dtype, out):
    op = "{function}"
    check_matrices(op, x, weight, may_mix=True)
    n = weight.shape[0]
    {checks}
    out_dtype = find_out_dtype(op, x, out_dtype, out)
    check_options(op, x, precision, out_dtype)
    return out_dtype or x.dtype


def {op}(
    {parameters},
    precision: str = "ieee",
    out_dtype: torch.dtype | None = None,
    weight_split: Tensor | None = None,
    out: str | None = None,
) -> Tensor:
    dtype = check_{op}(x, weight, {vectors}, precision, out_dtype, out)
    return round_to({op}_formula({operands}), dtype)
"""


def define(epilogue: Epilogue) -> None:
    """The op's definition and its checks, as functions of this module."""
    vectors = [BIAS, *epilogue.vectors]
    checks = [
        f'{_find_check(operand)}(op, "{operand.name}", {operand.name}, x, n)' for operand in vectors
    ]
    text = _TEMPLATE.format(
        op=epilogue.op,
        function=epilogue.function,
        vectors=", ".join(operand.name for operand in vectors),
        checks="\n    ".join(checks),
        parameters=make_parameters(epilogue),
        operands=", ".join(["product(x, weight, bias)", *epilogue.names]),
    )
    globals()[f"{epilogue.op}_formula"] = epilogue.formula
    run_text(text, f"<definition of {epilogue.op}>", globals())
    notes = f"\n\n{epilogue.notes}" if epilogue.notes else ""
    globals()[epilogue.op].__doc__ = f"y = {epilogue.text}{notes}"


def run_text(text: str, name: str, namespace: dict) -> None:
    """Python code that is no file, under a name by which tracebacks find its lines; without those
    that a template has left empty."""
    text = re.sub(r"^ +\n", "", text, flags=re.MULTILINE)
    lines = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)
    exec(compile(text, name, "exec"), namespace)


def _find_check(operand) -> str:
    return "check_row_or_scalar" if isinstance(operand, RowOrScalar) else "check_vector"


for _epilogue in EPILOGUES.values():
    define(_epilogue)
