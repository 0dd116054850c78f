// batch_norm_gradient: the gradients of z, gamma and beta through the statistics of the batch
#include "cutlass_fused/gradients/batch_norm.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "ops/gradients/checks.hpp"

namespace cutlass_fused {
namespace {

std::tuple<Tensor, Tensor, Tensor> batch_norm_gradient(Tensor x, Tensor z, Tensor mean, Tensor rstd,
                                                       std::optional<Tensor> gamma) {
  constexpr char kOp[] = "batch_norm_gradient";
  check_two_dimensions(kOp, x, "(M, N)");
  DataType const type = check_rows(kOp, x).type;
  int64_t const m = x.size(0), n = x.size(1);
  check_like_x(kOp, "z", z, x);
  float const* const means = check_wide_vector(kOp, "mean", mean, x, n);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x, n);
  float const* const gammas = gamma ? check_wide_vector(kOp, "gamma", *gamma, x, n) : nullptr;
  if (!x.is_contiguous()) x = torch::stable::contiguous(x);
  if (!z.is_contiguous()) z = torch::stable::contiguous(z);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor grad_z = allocate(x, {m, n}, x.scalar_type());
  Tensor grad_gamma = allocate(x, {n}, ScalarType::Float);
  Tensor grad_beta = allocate(x, {n}, ScalarType::Float);
  if (m == 0 || n == 0) {
    return {grad_z, torch::stable::zero_(grad_gamma), torch::stable::zero_(grad_beta)};
  }
  GradientStrips const strips = GradientStrips::make(m, n, type, device);
  Tensor const workspace = allocate(x, {BatchNormGradient::words(n, strips)}, ScalarType::Float);
  BatchNormGradient const gradient{type,
                                   m,
                                   n,
                                   x.const_data_ptr(),
                                   z.const_data_ptr(),
                                   means,
                                   rstds,
                                   gammas,
                                   grad_z.mutable_data_ptr(),
                                   static_cast<float*>(grad_gamma.mutable_data_ptr()),
                                   static_cast<float*>(grad_beta.mutable_data_ptr()),
                                   static_cast<float*>(workspace.mutable_data_ptr())};
  check_status(kOp, run_batch_norm_gradient(gradient, strips, device, current_stream(device)));
  return {grad_z, grad_gamma, grad_beta};
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) {
  m.impl("batch_norm_gradient", TORCH_BOX(&batch_norm_gradient));
}

}  // namespace
}  // namespace cutlass_fused
