// split_weight: the fp16 numbers that a product of fp32 matrices reads in place of its weight.
#include "ops/dispatch.hpp"

namespace cutlass_fused {
namespace {

template <class Math>
Tensor split(char const* op, Matrices matrices, Device const& device) {
  if (matrices.n == 0 || !splits_for(matrices.k))
    return allocate(matrices.weight, {0}, ScalarType::Byte);
  copy_scattered_rows(matrices);
  SplitOperand weight(matrices.n, matrices.k, Math::kEngine);
  check_status(op, weight.make(matrices.weight.const_data_ptr(), matrices.ldw, device,
                               current_stream(device), matrices.weight));
  return weight.tensor();
}

Tensor split_weight(Tensor weight, std::string precision) {
  constexpr char kOp[] = "split_weight";
  Matrices const matrices = check_weight(kOp, weight);
  Precision const checked = check_precision(kOp, precision);
  int const index = weight.get_device_index();
  torch::stable::accelerator::DeviceGuard const guard(index);
  Device const& device = supported_device(kOp, index);
  return checked == Precision::kTf32 ? split<Fp16x1>(kOp, matrices, device)
                                     : split<Fp16x3>(kOp, matrices, device);
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) {
  m.impl("split_weight", TORCH_BOX(&split_weight));
}

}  // namespace
}  // namespace cutlass_fused
