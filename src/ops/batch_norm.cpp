// batch_norm_train, batch_norm_inference:
//   y = (x - mean) / sqrt(var + eps) * gamma + beta, with the batch's statistics or the running
//   ones
#include "launch/allocate.hpp"
#include "launch/batch_statistics.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

constexpr char kOp[] = "batch_norm";  // what users call

Matrices check_batch(char const* op, Tensor const& x) {
  check_two_dimensions(op, x, "(M, N)");
  Matrices const rows = check_rows(op, x);
  check_columns(op, rows);
  return rows;
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_train(Tensor x, std::optional<Tensor> running_mean,
                                                    std::optional<Tensor> running_var,
                                                    std::optional<Tensor> num_batches_tracked,
                                                    std::optional<Tensor> gamma,
                                                    std::optional<Tensor> beta,
                                                    std::optional<double> momentum, double eps) {
  Matrices rows = check_batch(kOp, x);
  BatchNorm const batch_norm = check_batch_norm(
      kOp, {running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps}, rows);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor y = allocate(x, rows.y_shape, x.scalar_type());
  if (rows.m == 0 || rows.n == 0) {
    auto [mean, rstd] = count_empty_batch(kOp, rows, batch_norm, device);
    return {y, mean, rstd};
  }
  copy_scattered_rows(rows);
  Matrix const z = view_rows(rows);
  BatchCount count(batch_norm.running);
  ClusterPlan const on_chip =
      choose_cluster_plan(layout_of(z), alignment_of(y.const_data_ptr()), device);
  if (on_chip) {
    if (auto const found = run_on_chip(kOp, on_chip, z, batch_norm, y, device, count)) {
      return {y, std::get<0>(*found), std::get<1>(*found)};
    }
  }
  ComputedStatistics const computed = compute_statistics(kOp, z, batch_norm, y, device, count);
  run_normalization(kOp, z, computed.normalization(), y, computed.behind, device);
  return {y, computed.mean, computed.rstd};
}

Tensor batch_norm_inference(Tensor x, Tensor running_mean, Tensor running_var,
                            std::optional<Tensor> gamma, std::optional<Tensor> beta, double eps) {
  Matrices rows = check_batch(kOp, x);
  Vector const mean = check_vector(kOp, "running_mean", running_mean, rows, 0.0f);
  Vector const var = check_vector(kOp, "running_var", running_var, rows, 1.0f);
  RunningNormalization const normalization{
      mean,
      {check_vector(kOp, "gamma", gamma, rows, 1.0f), var, float(eps)},
      check_vector(kOp, "beta", beta, rows, 0.0f)};

  DeviceScope const scope(kOp, x);
  Tensor y = allocate(x, rows.y_shape, x.scalar_type());
  if (rows.m == 0 || rows.n == 0) return y;
  copy_scattered_rows(rows);
  run_normalization(kOp, view_rows(rows), normalization, y, BehindKernel{}, scope.device());
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("batch_norm_train", TORCH_BOX(&batch_norm_train));
  m.impl("batch_norm_inference", TORCH_BOX(&batch_norm_inference));
}

}  // namespace
}  // namespace cutlass_fused
