// batch_norm_gradient: the gradients of z, gamma and beta through the statistics of the batch
#include "cutlass_fused/gradients/batch_norm.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {
namespace {

void check_z(char const* op, Tensor const& z, Tensor const& x) {
  check_device(op, "z", z, x);
  STD_TORCH_CHECK(z.scalar_type() == x.scalar_type(), op, ": z must have the dtype of x, ",
                  dtype_string(x.scalar_type()), ", got ", dtype_string(z.scalar_type()));
  bool const is_alike = z.dim() == 2 && z.size(0) == x.size(0) && z.size(1) == x.size(1);
  STD_TORCH_CHECK(is_alike, op, ": z must have the shape of x, ", shape_string(x), ", got shape ",
                  shape_string(z));
}

// Returns its data.
float const* check_wide_vector(char const* op, char const* name, Tensor& vector, Tensor const& x) {
  check_device(op, name, vector, x);
  STD_TORCH_CHECK(vector.scalar_type() == ScalarType::Float, op, ": ", name,
                  " must be float32, got ", dtype_string(vector.scalar_type()));
  STD_TORCH_CHECK(vector.dim() == 1 && vector.size(0) == x.size(1), op, ": ", name,
                  " must have shape (", x.size(1), ",), got shape ", shape_string(vector));
  if (!vector.is_contiguous()) vector = torch::stable::contiguous(vector);
  return static_cast<float const*>(vector.const_data_ptr());
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_gradient(Tensor x, Tensor z, Tensor mean, Tensor rstd,
                                                       std::optional<Tensor> gamma) {
  constexpr char kOp[] = "batch_norm_gradient";
  check_two_dimensions(kOp, x, "(M, N)");
  DataType const type = check_rows(kOp, x).type;
  check_z(kOp, z, x);
  float const* const means = check_wide_vector(kOp, "mean", mean, x);
  float const* const rstds = check_wide_vector(kOp, "rstd", rstd, x);
  float const* const gammas = gamma ? check_wide_vector(kOp, "gamma", *gamma, x) : nullptr;
  if (!x.is_contiguous()) x = torch::stable::contiguous(x);
  if (!z.is_contiguous()) z = torch::stable::contiguous(z);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  int64_t const m = x.size(0), n = x.size(1);
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
