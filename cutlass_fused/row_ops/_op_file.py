"""The C++ file of an op along rows: checks, result, launch."""

import re

from ..epilogues._description import Number
from ..epilogues._op_file import check, declare
from ._description import RowOp

_TEMPLATE = """\
// {op}: y = {text}, over the last dimension
#include "cutlass_fused/{header}"

#include "launch/allocate.hpp"
#include "launch/rows.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {{
namespace {{

Tensor {op}({parameters}) {{
  constexpr char kOp[] = "{function}";
  Matrices matrices = check_rows(kOp, x);
  {checks}
  check_columns(kOp, matrices);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor y = allocate(x, matrices.y_shape, to_scalar_type({y_type}));
  if (matrices.m == 0 || matrices.n == 0) return y;
  copy_scattered_rows(matrices);
  check_status(kOp, for_type(matrices.type, [&](auto type) {{
                 return {launch}<type()>(view_rows(matrices), {arguments}, device,
                                         current_stream(device));
               }}));
  return y;
}}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {{
  m.impl("{op}", TORCH_BOX(&{op}));
}}

}}  // namespace
}}  // namespace cutlass_fused
"""


def make_op_file(row_op: RowOp) -> str:
    """The text of src/ops/<op>.cpp, less the line breaks of the formatter."""
    parameters = ["Tensor x", *map(declare, row_op.operands)]
    values = {"y": "y.mutable_data_ptr()"}
    checks = []
    for operand in row_op.operands:
        if isinstance(operand, Number):
            values[operand.name] = check(operand)
        else:
            values[operand.name] = f"{operand.name}_row"
            checks.append(f"Vector const {operand.name}_row = {check(operand)};")
    order = ["y", *(["y_type"] if row_op.out_dtype else []), *row_op.names]
    if row_op.out_dtype:
        parameters += ["std::optional<ScalarType> out_dtype", "std::optional<std::string> out"]
        type_check = "check_out_dtype(kOp, out_dtype, out, matrices)"
        checks.append(f"DataType const y_type = {type_check};")
    arguments = row_op.launch.arguments or ", ".join(order)
    arguments = re.sub(rf"\b({'|'.join(values)})\b", lambda found: values[found[0]], arguments)
    text = _TEMPLATE.format(
        op=row_op.op,
        text=row_op.text,
        header=row_op.launch.header,
        parameters=", ".join(parameters),
        function=row_op.function,
        checks="\n  ".join(checks),
        y_type="y_type" if row_op.out_dtype else "matrices.type",
        launch=row_op.launch.function,
        arguments=arguments,
    )
    return re.sub(r"^ +\n", "", text, flags=re.MULTILINE)
