"""The C++ file of an epilogue's op: check, arguments, run_linear."""

import re

from ._description import BIAS, Epilogue, Number, Operand, RowOrScalar
from ._schema import write_formula

_TEMPLATE = """\
// {op}: y = {text}
#include "cutlass_fused/epilogue/{header}"
#include "launch/product.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {{
namespace {{

Tensor {op}(
    {parameters}) {{
  constexpr char kOp[] = "{function}";
  Matrices const matrices = check_mixed_matrices(kOp, x, weight, weight_split);
  {struct}::Args const epilogue{arguments};
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  {launch}
}}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {{
  m.impl("{op}", TORCH_BOX(&{op}));
}}

}}  // namespace
}}  // namespace cutlass_fused
"""

_LAUNCH = "return run_linear(kOp, matrices, call_epilogue<{struct}>(epilogue), checked, y_type);"
# Kernels store the product itself where nothing follows it.
_LAUNCH_BARE = """\
EpilogueCall call = call_epilogue<{struct}>(epilogue);
  call.is_bare = !bias.has_value();
  return run_linear(kOp, matrices, call, checked, y_type);"""


def make_op_file(epilogue: Epilogue) -> str:
    """The text of src/ops/<op>.cpp, less the line breaks of the formatter."""
    operands = {operand.name: operand for operand in (BIAS, *epilogue.operands)}
    functor = epilogue.functor
    arguments = functor.arguments or "{" + ", ".join(operands) + "}"
    names = "|".join(operands)
    checked = re.sub(rf"\b({names})\b", lambda found: check(operands[found[0]]), arguments)
    parameters = ["Tensor x", "Tensor weight", *map(declare, operands.values())]
    parameters += ["std::string precision", "std::optional<ScalarType> out_dtype"]
    parameters += ["std::optional<Tensor> weight_split", "std::optional<std::string> out"]
    return _TEMPLATE.format(
        op=epilogue.op,
        text=write_formula(epilogue),
        header=functor.header,
        parameters=",\n    ".join(parameters),
        function=epilogue.function,
        struct=functor.struct,
        launch=(_LAUNCH_BARE if epilogue.is_bare else _LAUNCH).format(struct=functor.struct),
        arguments=" " + checked if checked.startswith("=") else checked,
    )


def declare(operand: Operand) -> str:
    if isinstance(operand, Number):
        return f"double {operand.name}"
    return f"{'Tensor' if operand.required else 'std::optional<Tensor>'} {operand.name}"


def check(operand: Operand) -> str:
    name = operand.name
    if isinstance(operand, Number):
        return f"float({name})"
    if isinstance(operand, RowOrScalar):
        return f'check_scale(kOp, "{name}", {name}, matrices)'
    return f'check_vector(kOp, "{name}", {name}, matrices, {operand.absent}f)'
