// softmax_gradient: y * (x - sum(x * y)), over the last dimension
#include "cutlass_fused/gradients/softmax.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "op_namespace.hpp"
#include "ops/gradients/checks.hpp"

namespace cutlass_fused {
namespace {

Tensor softmax_gradient(Tensor x, Tensor y) {
  constexpr char kOp[] = "softmax_gradient";
  Matrices const rows = check_rows(kOp, x);
  check_like_x(kOp, "y", y, x);
  if (!x.is_contiguous()) x = torch::stable::contiguous(x);
  if (!y.is_contiguous()) y = torch::stable::contiguous(y);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor grad_v = allocate(x, rows.y_shape, x.scalar_type());
  if (rows.m == 0 || rows.n == 0) return grad_v;
  SoftmaxGradient const gradient{
      rows.type, rows.m, rows.n, x.const_data_ptr(), y.const_data_ptr(), grad_v.mutable_data_ptr()};
  check_status(kOp, run_softmax_gradient(gradient, device, current_stream(device)));
  return grad_v;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("softmax_gradient", TORCH_BOX(&softmax_gradient));
}

}  // namespace
}  // namespace cutlass_fused
