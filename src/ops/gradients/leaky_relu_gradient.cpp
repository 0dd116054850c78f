// leaky_relu_gradient: x * (positive ? factor : negative_factor), and its column sums
#include "cutlass_fused/gradients/leaky_relu.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

void check_positive(char const* op, Tensor const& positive, Tensor const& x) {
  check_device(op, "positive", positive, x);
  STD_TORCH_CHECK(positive.scalar_type() == ScalarType::Bool, op, ": positive must be bool, got ",
                  dtype_string(positive.scalar_type()));
  bool const is_alike =
      positive.dim() == 2 && positive.size(0) == x.size(0) && positive.size(1) == x.size(1);
  STD_TORCH_CHECK(is_alike, op, ": positive must have the shape of x, ", shape_string(x),
                  ", got shape ", shape_string(positive));
}

std::tuple<Tensor, Tensor> leaky_relu_gradient(Tensor x, Tensor positive, double factor,
                                               double negative_factor) {
  constexpr char kOp[] = "leaky_relu_gradient";
  check_two_dimensions(kOp, x, "(M, N)");
  DataType const type = check_rows(kOp, x).type;
  check_positive(kOp, positive, x);
  if (!x.is_contiguous()) x = torch::stable::contiguous(x);
  if (!positive.is_contiguous()) positive = torch::stable::contiguous(positive);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  int64_t const m = x.size(0), n = x.size(1);
  Tensor grad_z = allocate(x, {m, n}, x.scalar_type());
  Tensor sums = allocate(x, {n}, ScalarType::Float);
  if (m == 0 || n == 0) return {grad_z, torch::stable::zero_(sums)};
  GradientStrips const strips = GradientStrips::make(m, n, type, device);
  Tensor const strip_sums = allocate(x, {strips.count, n}, ScalarType::Float);
  LeakyReLUGradient const gradient{type,
                                   m,
                                   n,
                                   x.const_data_ptr(),
                                   static_cast<bool const*>(positive.const_data_ptr()),
                                   grad_z.mutable_data_ptr(),
                                   static_cast<float*>(strip_sums.mutable_data_ptr()),
                                   static_cast<float*>(sums.mutable_data_ptr()),
                                   float(factor),
                                   float(negative_factor)};
  check_status(kOp, run_leaky_relu_gradient(gradient, strips, device, current_stream(device)));
  return {grad_z, sums};
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("leaky_relu_gradient", TORCH_BOX(&leaky_relu_gradient));
}

}  // namespace
}  // namespace cutlass_fused
