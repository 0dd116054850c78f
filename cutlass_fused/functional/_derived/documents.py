"""The docstrings of derived functions."""

import textwrap

from ...epilogues._description import BIAS, Epilogue, Number, Operand, RowOrScalar
from ...epilogues._schema import write_formula
from .._documents import fill

_TEMPLATE = """\
y = {formula}
{notes}
    Args:
        {{x}}
        {{weight}}
        {{bias}}
{operands}
        {{precision}}
        {out_dtype}
        {{weight_split}}

    Returns:
        {{returns}}

{numerics}
    {{backward}}

    Raises:
{type_error}
        {{errors}}
    """


def make_docstring(epilogue: Epilogue) -> str:
    promotes = any(isinstance(operand, RowOrScalar) for operand in epilogue.operands)
    notes = textwrap.indent(epilogue.notes, "    ")
    tail, cast = ("tail", "the others are not") if epilogue.operands else ("bias", _LIKE_LINEAR)
    return fill(
        _TEMPLATE.format(
            formula=write_formula(epilogue),
            notes=f"\n{notes}\n" if notes else "",
            operands="\n".join(map(describe, epilogue.operands)),
            out_dtype="{promoted_out_dtype}" if promotes else "{out_dtype}",
            numerics=wrap(_NUMERICS.format(tail, cast), 4),
            type_error=wrap(f"TypeError: {_list_type_errors(epilogue)}.", 8),
        ).replace("{bias}\n\n", "{bias}\n")
    )


_LIKE_LINEAR = "as torch.nn.functional.linear does"
_NUMERICS = (
    "Numerics: sums and {} in fp32 (float64 for float64 inputs), rounded once, at the end. "
    "Under autocast x, weight and bias are cast to its dtype first, {}."
)


def wrap(text: str, indent: int) -> str:
    more = " " * (indent + 4 if indent > 4 else indent)
    return textwrap.fill(text, 100, initial_indent=" " * indent, subsequent_indent=more)


def describe(operand: Operand) -> str:
    if isinstance(operand, Number):
        return wrap(f"{operand.name}: a number.", 8)
    absent = "" if operand.required else f"; None is {getattr(operand, 'absent', 1.0):g}"
    if isinstance(operand, RowOrScalar):
        kinds = "a number, or a tensor with one element or of shape (N,), dtype of x or float32"
        return wrap(f"{operand.name}: {kinds}{absent}.", 8)
    return wrap(f"{operand.name}: (N,), dtype of x or float32, any stride{absent}.", 8)


def _list_type_errors(epilogue: Epilogue) -> str:
    *first, last = ["x", "weight", BIAS.name, *(vector.name for vector in epilogue.vectors)]
    text = f"{', '.join(first)} or {last} is not a tensor"
    numbers = [operand.name for operand in epilogue.operands if isinstance(operand, Number)]
    return text + "".join(f", or {name} no number" for name in numbers)
