// linear_scale_leaky_relu: y = leaky_relu((x @ weight.T + bias) * scale * multiplier, slope)
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "launch/product.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor linear_scale_leaky_relu(Tensor x, Tensor weight, std::optional<Tensor> bias,
                               std::optional<Tensor> scale, double multiplier,
                               double negative_slope, std::string precision,
                               std::optional<ScalarType> out_dtype,
                               std::optional<Tensor> weight_split, std::optional<std::string> out) {
  constexpr char kOp[] = "linear_scale_leaky_relu";
  Matrices const matrices = check_mixed_matrices(kOp, x, weight, weight_split);
  ScaleLeakyReLU::Args const epilogue{
      check_vector(kOp, "bias", bias, matrices, 0.0f),
      {check_scale(kOp, "scale", scale, matrices), float(multiplier)},
      float(negative_slope)};
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  return run_linear(kOp, matrices, call_epilogue<ScaleLeakyReLU>(epilogue), checked, y_type);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_scale_leaky_relu", TORCH_BOX(&linear_scale_leaky_relu));
}

}  // namespace
}  // namespace cutlass_fused
