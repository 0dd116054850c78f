// softmax: y = exp(x - max) / sum(exp(x - max)), over the last dimension
#include "cutlass_fused/softmax/row_softmax.hpp"

#include "launch/allocate.hpp"
#include "launch/rows.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor softmax(Tensor x, std::optional<ScalarType> out_dtype, std::optional<std::string> out) {
  constexpr char kOp[] = "softmax";
  Matrices matrices = check_rows(kOp, x);
  DataType const y_type = check_out_dtype(kOp, out_dtype, out, matrices);
  check_columns(kOp, matrices);

  DeviceScope const scope(kOp, x);
  Device const& device = scope.device();
  Tensor y = allocate(x, matrices.y_shape, to_scalar_type(y_type));
  if (matrices.m == 0 || matrices.n == 0) return y;
  copy_scattered_rows(matrices);
  check_status(kOp, for_type(matrices.type, [&](auto type) {
                 return run_row_softmax<type()>(view_rows(matrices), Vector::constant(1.0f),
                                                y.mutable_data_ptr(), y_type, device,
                                                current_stream(device));
               }));
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("softmax", TORCH_BOX(&softmax));
}

}  // namespace
}  // namespace cutlass_fused
