// unscale_columns and scale_gradient: the gradient of a scale in front of a batch norm
#include "cutlass_fused/gradients/scale.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "op_namespace.hpp"
#include "ops/gradients/checks.hpp"

namespace cutlass_fused {
namespace {

void unscale_columns(Tensor x, Tensor grad_y, Tensor v, Tensor mean, Tensor rstd, Tensor grad_gamma,
                     Tensor grad_beta, double eps, std::optional<Tensor> gamma) {
  constexpr char kOp[] = "unscale_columns";
  check_two_dimensions(kOp, x, "(M, N)");
  DataType const type = check_rows(kOp, x).type;
  int64_t const m = x.size(0), n = x.size(1);
  check_contiguous(kOp, x);
  check_like_x(kOp, "grad_y", grad_y, x);
  check_like_x(kOp, "v", v, x);
  float const* const means = check_wide_vector(kOp, "mean", mean, x, n);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x, n);
  float const* const of_gamma = check_wide_vector(kOp, "grad_gamma", grad_gamma, x, n);
  float const* const of_beta = check_wide_vector(kOp, "grad_beta", grad_beta, x, n);
  Vector const gammas = check_any_vector(kOp, "gamma", gamma, x, n, 1.0f);
  if (!grad_y.is_contiguous()) grad_y = torch::stable::contiguous(grad_y);
  if (!v.is_contiguous()) v = torch::stable::contiguous(v);
  if (m == 0 || n == 0) return;

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  UnscaleColumns const columns{type,
                               m,
                               n,
                               x.mutable_data_ptr(),
                               grad_y.const_data_ptr(),
                               v.const_data_ptr(),
                               means,
                               rstds,
                               of_gamma,
                               of_beta,
                               gammas,
                               float(eps)};
  check_status(kOp, run_unscale_columns(columns, device, current_stream(device)));
}

Tensor scale_gradient(Tensor x, Tensor weight, Tensor scale, Tensor rstd, Tensor grad_gamma,
                      double eps, std::optional<Tensor> gamma) {
  constexpr char kOp[] = "scale_gradient";
  check_two_dimensions(kOp, x, "(N, K)");
  DataType const type = check_rows(kOp, x).type;
  int64_t const n = x.size(0), k = x.size(1);
  check_contiguous(kOp, x);
  check_like_x(kOp, "weight", weight, x);
  Vector const scales = check_any_vector(kOp, "scale", scale, x, n, 1.0f, true);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x, n);
  float const* const grads = check_wide_vector(kOp, "grad_gamma", grad_gamma, x, n);
  Vector const gammas = check_any_vector(kOp, "gamma", gamma, x, n, 1.0f);
  if (!weight.is_contiguous()) weight = torch::stable::contiguous(weight);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor grad_scale = allocate(x, {n}, ScalarType::Float);
  if (n == 0) return grad_scale;
  ScaleGradient const gradient{type,
                               n,
                               k,
                               x.mutable_data_ptr(),
                               weight.const_data_ptr(),
                               rstds,
                               grads,
                               scales,
                               gammas,
                               float(eps),
                               static_cast<float*>(grad_scale.mutable_data_ptr())};
  check_status(kOp, run_scale_gradient(gradient, device, current_stream(device)));
  return grad_scale;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("unscale_columns", TORCH_BOX(&unscale_columns));
  m.impl("scale_gradient", TORCH_BOX(&scale_gradient));
}

}  // namespace
}  // namespace cutlass_fused
