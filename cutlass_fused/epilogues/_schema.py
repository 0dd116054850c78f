"""The schema of an op that is described, and its signature in Python."""

import re

from ._description import Description, Epilogue, Number, Operand, list_with_defaults


def make_schema(description: Description) -> str:
    """The line of schemas.txt."""
    arguments = [f"Tensor {name}" for name in description.matrices]
    for operand, has_default in list_with_defaults(description):
        arguments.append(f"{_find_type(operand)} {operand.name}")
        if has_default:
            arguments[-1] += f"={_find_default(operand)}"
    return f"{description.op}({', '.join([*arguments, *description.options])}) -> Tensor"


def write_formula(epilogue: Epilogue) -> str:
    """y as users read it: of x, weight and bias."""
    product, count = "x @ weight.T + bias", len(re.findall(r"\bz\b", epilogue.text))
    if epilogue.text == "z":
        return product
    if count > 1:
        return f"{epilogue.text} with z = {product}"
    text = re.sub(r"(?<=\()z(?=[,)])", product, epilogue.text)  # an argument as it is
    return re.sub(r"\bz\b", f"({product})", text)


def make_parameters(description: Description) -> str:
    """Those of a function in Python, up to the last operand, one a line."""
    parameters = [f"{name}: Tensor" for name in description.matrices]
    for operand, has_default in list_with_defaults(description):
        kind = "float" if isinstance(operand, Number) else "Tensor"
        kind += " | None" if kind == "Tensor" and not operand.required else ""
        default = f" = {_find_default(operand)}" if has_default else ""
        parameters.append(f"{operand.name}: {kind}{default}")
    return ",\n    ".join(parameters)


def _find_type(operand: Operand) -> str:
    if isinstance(operand, Number):
        return "float"
    return "Tensor" if operand.required else "Tensor?"


def _find_default(operand: Operand) -> float | None:
    return operand.default if isinstance(operand, Number) else None
