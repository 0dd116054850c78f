// linear: y = x @ weight.T + bias
#include "cutlass_fused/epilogue/bias.hpp"
#include "launch/product.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor linear(Tensor x, Tensor weight, std::optional<Tensor> bias, std::string precision,
              std::optional<ScalarType> out_dtype, std::optional<Tensor> weight_split,
              std::optional<std::string> out) {
  constexpr char kOp[] = "linear";
  Matrices const matrices = check_mixed_matrices(kOp, x, weight, weight_split);
  ScaleLeakyReLU::Args const epilogue = bias_alone(check_vector(kOp, "bias", bias, matrices, 0.0f));
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  EpilogueCall call = call_epilogue<ScaleLeakyReLU>(epilogue);
  call.is_bare = !bias.has_value();
  return run_linear(kOp, matrices, call, checked, y_type);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear", TORCH_BOX(&linear));
}

}  // namespace
}  // namespace cutlass_fused
