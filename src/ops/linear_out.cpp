// linear_out: x @ weight.T + bias, written to y
#include "cutlass_fused/epilogue/bias.hpp"
#include "launch/product.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

// Throws unless the product can be written to y.
DataType check_y(char const* op, Tensor const& y, Matrices const& matrices) {
  std::vector<int64_t> const shape(y.sizes().begin(), y.sizes().end());
  STD_TORCH_CHECK(shape == matrices.y_shape, op, ": y must have the shape of the product, ",
                  shape_string(matrices.y_shape), ", got shape ", shape_string(shape));
  check_device(op, "y", y, matrices.x);
  bool const is_wide = y.scalar_type() == ScalarType::Float;
  STD_TORCH_CHECK(is_wide || y.scalar_type() == to_scalar_type(matrices.type), op,
                  ": y must be float32 or have x's dtype, got ", dtype_string(y.scalar_type()));
  STD_TORCH_CHECK(y.is_contiguous(), op, ": y must be contiguous, got strides ", strides_string(y));
  return is_wide ? DataType::kFloat32 : matrices.type;
}

void linear_out(Tensor y, Tensor x, Tensor weight, std::optional<Tensor> bias,
                std::string precision) {
  constexpr char kOp[] = "linear_out";
  Matrices const matrices = check_matrices(kOp, x, weight);
  ScaleLeakyReLU::Args const epilogue = bias_alone(check_vector(kOp, "bias", bias, matrices, 0.0f));
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_y(kOp, y, matrices);
  check_operands(kOp, matrices, checked);
  if (matrices.m == 0 || matrices.n == 0) return;
  EpilogueCall call = call_epilogue<ScaleLeakyReLU>(epilogue);
  call.is_bare = !bias.has_value();
  DeviceScope const scope(kOp, x);
  run_linear_into(kOp, matrices, call, checked, y, y_type, Tail::kEpilogue, scope.device());
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_out", TORCH_BOX(&linear_out));
}

}  // namespace
}  // namespace cutlass_fused
