// linear_scale_batch_norm_train:
//   z = (x @ weight.T + bias) * scale,  y = (z - mean) * rstd * gamma + beta, of the batch
#include "launch/linear_batch_norm_train.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

TrainResult linear_scale_batch_norm_train(
    Tensor x, Tensor weight, std::optional<Tensor> bias, std::optional<Tensor> scale,
    std::optional<Tensor> running_mean, std::optional<Tensor> running_var,
    std::optional<Tensor> num_batches_tracked, std::optional<Tensor> gamma,
    std::optional<Tensor> beta, std::optional<double> momentum, double eps, std::string precision,
    std::optional<ScalarType> out_dtype, bool keep_z, std::optional<Tensor> weight_split,
    std::optional<Tensor> centre, std::optional<std::string> out) {
  constexpr char kOp[] = "linear_scale_batch_norm";  // what users call
  check_two_dimensions(kOp, x, "(M, K)");
  Matrices const matrices = check_matrices(kOp, x, weight, weight_split);
  ScaleBias::Args const product{check_vector(kOp, "bias", bias, matrices, 0.0f),
                                check_scale(kOp, "scale", scale, matrices)};
  BatchNorm const batch_norm = check_batch_norm(
      kOp, {running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps}, matrices);
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  float* const checked_centre = check_centre(kOp, centre, matrices);

  DeviceScope const scope(kOp, x);
  TrainedProduct const trained =
      run_linear_train(kOp, matrices, product, checked, y_type, batch_norm, keep_z, checked_centre,
                       /*is_last=*/true, scope.device());
  if (auto const& statistics = trained.statistics) {
    run_normalization(kOp, trained.rows, statistics->normalization(), std::get<0>(trained.result),
                      statistics->behind, scope.device());
  }
  return trained.result;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_scale_batch_norm_train", TORCH_BOX(&linear_scale_batch_norm_train));
}

}  // namespace
}  // namespace cutlass_fused
