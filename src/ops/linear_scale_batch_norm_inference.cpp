// linear_scale_batch_norm_inference:
//   y = ((x @ weight.T + bias) * scale - running_mean) / sqrt(running_var + eps) * gamma + beta
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "launch/product.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor linear_scale_batch_norm_inference(Tensor x, Tensor weight, std::optional<Tensor> bias,
                                         std::optional<Tensor> scale, Tensor running_mean,
                                         Tensor running_var, std::optional<Tensor> gamma,
                                         std::optional<Tensor> beta, double eps,
                                         std::string precision, std::optional<ScalarType> out_dtype,
                                         std::optional<Tensor> weight_split,
                                         std::optional<std::string> out) {
  constexpr char kOp[] = "linear_scale_batch_norm";  // what users call
  Matrices const matrices = check_mixed_matrices(kOp, x, weight, weight_split);
  ScaleBatchNorm::Args const epilogue{
      check_vector(kOp, "bias", bias, matrices, 0.0f),
      check_scale(kOp, "scale", scale, matrices),
      check_vector(kOp, "running_mean", running_mean, matrices, 0.0f),
      check_vector(kOp, "running_var", running_var, matrices, 1.0f),
      check_vector(kOp, "gamma", gamma, matrices, 1.0f),
      check_vector(kOp, "beta", beta, matrices, 0.0f),
      float(eps)};
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  return run_linear(kOp, matrices, call_epilogue<ScaleBatchNorm>(epilogue), checked, y_type);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_scale_batch_norm_inference", TORCH_BOX(&linear_scale_batch_norm_inference));
}

}  // namespace
}  // namespace cutlass_fused
