// split_weight: the fp16 numbers that a product of fp32 matrices reads in place of its weight.
#include "launch/product.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor split_weight(Tensor weight, std::string precision) {
  constexpr char kOp[] = "split_weight";
  Matrices matrices = check_weight(kOp, weight);
  Precision const checked = check_precision(kOp, precision);
  DeviceScope const scope(kOp, weight);
  MathId const math = choose_math(matrices.type, checked, matrices.k);
  if (matrices.n == 0 || !splits_rows(math)) return allocate(weight, {0}, ScalarType::Byte);
  Device const& device = scope.device();
  Major const major = find_major(weight, matrices.ldw);
  SplitLayout const layout = layout_of_split(math, matrices, device);
  copy_scattered_rows(matrices, /*x=*/false, major == Major::kK);
  Tensor const& from = matrices.weight;
  SplitOperand split(layout.rows, layout.k, spec_of(math).engine);
  // Where its parts lie along N, they are those of rows of the transpose.
  bool const in_rows = major == Major::kK || has_parts_along_n(math, major, matrices.n, device);
  split.reserve(in_rows ? Major::kK : Major::kMn, from);
  int64_t const ld = major == Major::kK ? matrices.ldw : from.stride(1);
  check_status(kOp, split.make(from.const_data_ptr(), ld, /*folded=*/nullptr, /*behind=*/{},
                               /*is_clear=*/false, device, current_stream(device)));
  return split.tensor();
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("split_weight", TORCH_BOX(&split_weight));
}

}  // namespace
}  // namespace cutlass_fused
