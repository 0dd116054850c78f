// linear_batch_norm_scale_softmax_train, linear_batch_norm_scale_softmax_inference:
//   z = x @ weight.T + bias,  b = (z - mean) * rstd * gamma + beta,  y = softmax(b * scale), along
//   rows
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "launch/allocate.hpp"
#include "launch/linear_batch_norm_train.hpp"
#include "launch/rows.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

constexpr char kOp[] = "linear_batch_norm_scale_softmax";  // what users call

TrainResult linear_batch_norm_scale_softmax_train(
    Tensor x, Tensor weight, std::optional<Tensor> bias, std::optional<Tensor> scale,
    std::optional<Tensor> running_mean, std::optional<Tensor> running_var,
    std::optional<Tensor> num_batches_tracked, std::optional<Tensor> gamma,
    std::optional<Tensor> beta, std::optional<double> momentum, double eps, std::string precision,
    std::optional<ScalarType> out_dtype, bool keep_z, std::optional<Tensor> weight_split,
    std::optional<Tensor> centre, std::optional<std::string> out) {
  check_two_dimensions(kOp, x, "(M, K)");
  Matrices const matrices = check_matrices(kOp, x, weight, weight_split);
  ScaleBias::Args const product{check_vector(kOp, "bias", bias, matrices, 0.0f),
                                Vector::constant(1.0f)};
  Vector const factor = check_scale(kOp, "scale", scale, matrices);
  BatchNorm const batch_norm = check_batch_norm(
      kOp, {running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps}, matrices);
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  float* const checked_centre = check_centre(kOp, centre, matrices);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  TrainedProduct const trained =
      run_linear_train(kOp, matrices, product, checked, y_type, batch_norm, keep_z, checked_centre,
                       /*is_last=*/false, device);
  if (trained.is_empty) return trained.result;
  Tensor const& y = std::get<0>(trained.result);
  if (auto const& statistics = trained.statistics) {
    run_normalized_softmax(kOp, trained.rows, {statistics->normalization(), factor}, y, y, y_type,
                           statistics->behind, device);
  } else {
    run_scaled_softmax(kOp, trained.rows, factor, y, y, y_type, device);
  }
  return trained.result;
}

Tensor linear_batch_norm_scale_softmax_inference(
    Tensor x, Tensor weight, std::optional<Tensor> bias, std::optional<Tensor> scale,
    Tensor running_mean, Tensor running_var, std::optional<Tensor> gamma,
    std::optional<Tensor> beta, double eps, std::string precision,
    std::optional<ScalarType> out_dtype, std::optional<Tensor> weight_split,
    std::optional<std::string> out) {
  check_two_dimensions(kOp, x, "(M, K)");
  Matrices const matrices = check_matrices(kOp, x, weight, weight_split);
  Vector const z_bias = check_vector(kOp, "bias", bias, matrices, 0.0f);
  Vector const factor = check_scale(kOp, "scale", scale, matrices);
  Vector const mean = check_vector(kOp, "running_mean", running_mean, matrices, 0.0f);
  Vector const var = check_vector(kOp, "running_var", running_var, matrices, 1.0f);
  ScaleBatchNorm::Args const epilogue{z_bias,
                                      Vector::constant(1.0f),
                                      mean,
                                      var,
                                      check_vector(kOp, "gamma", gamma, matrices, 1.0f),
                                      check_vector(kOp, "beta", beta, matrices, 0.0f),
                                      float(eps)};
  Precision const checked = check_precision(kOp, precision);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  check_columns(kOp, matrices);

  // b leaves the product's kernel in fp32, so that 16 bits are rounded to once, at the end.
  // Where y is of fp32 too, b is as accurate as such results are.
  DeviceScope const scope(kOp, x);
  Tail::Kind const kind = y_type == DataType::kFloat32 ? Tail::kEpilogue : Tail::kLogits;
  Tensor const b = run_linear(kOp, matrices, call_epilogue<ScaleBatchNorm>(epilogue), checked,
                              DataType::kFloat32, kind);
  Tensor y =
      y_type == DataType::kFloat32 ? b : allocate(b, matrices.y_shape, to_scalar_type(y_type));
  if (matrices.m == 0 || matrices.n == 0) return y;
  Matrix const rows = view_rows(b, matrices, DataType::kFloat32);
  run_scaled_softmax(kOp, rows, factor, b, y, y_type, scope.device());
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_batch_norm_scale_softmax_train",
         TORCH_BOX(&linear_batch_norm_scale_softmax_train));
  m.impl("linear_batch_norm_scale_softmax_inference",
         TORCH_BOX(&linear_batch_norm_scale_softmax_inference));
}

}  // namespace
}  // namespace cutlass_fused
