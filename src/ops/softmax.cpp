// softmax: y = softmax(x), over the last dimension
#include "ops/rows.hpp"

namespace cutlass_fused {
namespace {

Tensor softmax(Tensor x, std::optional<ScalarType> out_dtype, std::optional<std::string> out) {
  constexpr char kOp[] = "softmax";
  Matrices rows = check_rows(kOp, x);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, rows);
  check_columns(kOp, rows);

  torch::stable::accelerator::DeviceGuard const guard(x.get_device_index());
  Device const& device = supported_device(kOp, x.get_device_index());
  Tensor y = allocate(x, rows.y_shape, to_scalar_type(y_type));
  if (rows.m == 0 || rows.n == 0) return y;
  copy_scattered_rows(rows);
  run_softmax(kOp, view_rows(rows), Vector::constant(1.0f), y, y_type, device);
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) { m.impl("softmax", TORCH_BOX(&softmax)); }

}  // namespace
}  // namespace cutlass_fused
