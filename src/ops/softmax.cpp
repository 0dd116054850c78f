// softmax: y = softmax(x), over the last dimension
#include "launch/allocate.hpp"
#include "launch/rows.hpp"

namespace cutlass_fused {
namespace {

Tensor softmax(Tensor x, std::optional<ScalarType> out_dtype, std::optional<std::string> out) {
  constexpr char kOp[] = "softmax";
  Matrices rows = check_rows(kOp, x);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, rows);
  check_columns(kOp, rows);

  DeviceScope const scope(kOp, x);
  Tensor y = allocate(x, rows.y_shape, to_scalar_type(y_type));
  if (rows.m == 0 || rows.n == 0) return y;
  copy_scattered_rows(rows);
  run_softmax(kOp, view_rows(rows), Vector::constant(1.0f), y, y_type, scope.device());
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) { m.impl("softmax", TORCH_BOX(&softmax)); }

}  // namespace
}  // namespace cutlass_fused
