// unscale_columns and scale_gradient: the gradient of a scale in front of a batch norm
#include "cutlass_fused/gradients/scale.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "ops/gradients/checks.hpp"

namespace cutlass_fused {
namespace {

void unscale_columns(Tensor x, Tensor grad_v, Tensor rstd, double eps) {
  constexpr char kOp[] = "unscale_columns";
  check_two_dimensions(kOp, x, "(M, N)");
  DataType const type = check_rows(kOp, x).type;
  int64_t const m = x.size(0), n = x.size(1);
  check_contiguous(kOp, x);
  check_like_x(kOp, "grad_v", grad_v, x);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x, n);
  if (!grad_v.is_contiguous()) grad_v = torch::stable::contiguous(grad_v);
  if (m == 0 || n == 0) return;

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  UnscaleColumns const columns{type,  m,         n, x.mutable_data_ptr(), grad_v.const_data_ptr(),
                               rstds, float(eps)};
  check_status(kOp, run_unscale_columns(columns, GradientStrips::make(m, n, type, device), device,
                                        current_stream(device)));
}

Tensor scale_gradient(Tensor x, Tensor weight, Tensor scale, Tensor rstd, Tensor grad_gamma,
                      double eps, std::optional<Tensor> gamma) {
  constexpr char kOp[] = "scale_gradient";
  check_two_dimensions(kOp, x, "(N, K)");
  DataType const type = check_rows(kOp, x).type;
  int64_t const n = x.size(0), k = x.size(1);
  check_contiguous(kOp, x);
  check_like_x(kOp, "weight", weight, x);
  float const* const scales = check_wide_vector(kOp, "scale", scale, x, n);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x, n);
  float const* const grads = check_wide_vector(kOp, "grad_gamma", grad_gamma, x, n);
  float const* const gammas = gamma ? check_wide_vector(kOp, "gamma", *gamma, x, n) : nullptr;
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
                               scales,
                               rstds,
                               grads,
                               gammas,
                               float(eps),
                               static_cast<float*>(grad_scale.mutable_data_ptr())};
  check_status(kOp, run_scale_gradient(gradient, device, current_stream(device)));
  return grad_scale;
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) {
  m.impl("unscale_columns", TORCH_BOX(&unscale_columns));
  m.impl("scale_gradient", TORCH_BOX(&scale_gradient));
}

}  // namespace
}  // namespace cutlass_fused
