// split_weight: the fp16 numbers that a product of fp32 matrices reads in place of its weight; and
// split_weight_checked, which gives them with a checksum of the weight, by which
// split_weight_if_changed finds on the GPU whether they are those of it still.
#include "cutlass_fused/gemm/fp16x3_kept/split_again.hpp"

#include "launch/product.hpp"
#include "checks/status.hpp"

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

// A weight of which the parts are kept, in one layout.
struct KeptWeight {
  float const* data;
  SplitLayout layout;
  bool is_split;  // else there are no parts

  KeptWeight(char const* op, Tensor const& weight, std::string const& precision)
      : data(nullptr), layout{}, is_split(false) {
    Matrices const matrices = check_weight(op, weight);
    MathId const math = choose_math(matrices.type, check_precision(op, precision), matrices.k);
    if (matrices.n == 0 || !splits_rows(math)) return;
    data = static_cast<float const*>(weight.const_data_ptr());
    layout = {matrices.n, matrices.k, spec_of(math).engine == Engine::kFp16x3};
    is_split = true;
    STD_TORCH_CHECK(weight.is_contiguous() && can_split_again(layout, data), op,
                    ": weight must be contiguous, aligned to 16 bytes, have fewer than 2^31 "
                    "elements, and K a multiple of 4, got shape ",
                    shape_string(weight), ", strides ", strides_string(weight), ", ",
                    alignment_of(data), " bytes");
  }

  void split(char const* op, Tensor const& to, Tensor const& checksum, bool always,
             Device const& device) const {
    auto* const state = static_cast<ChecksumState*>(checksum.mutable_data_ptr());
    check_status(op, run_split_again(layout, data, to.mutable_data_ptr(), state, always, device,
                                     current_stream(device)));
  }
};

std::tuple<Tensor, Tensor> split_weight_checked(Tensor weight, std::string precision) {
  constexpr char kOp[] = "split_weight_checked";
  KeptWeight const kept(kOp, weight, precision);
  DeviceScope const scope(kOp, weight);
  Tensor split = allocate(weight, {kept.is_split ? kept.layout.bytes() : 0}, ScalarType::Byte);
  Tensor checksum = allocate(weight, {kChecksumWords}, ScalarType::Long);
  checksum = torch::stable::zero_(checksum);
  if (kept.is_split) kept.split(kOp, split, checksum, /*always=*/true, scope.device());
  return {split, checksum};
}

void check_kept(char const* op, char const* name, Tensor const& tensor, Tensor const& weight,
                ScalarType type, int64_t size) {
  check_device(op, name, tensor, weight);
  auto const address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  STD_TORCH_CHECK(tensor.scalar_type() == type && tensor.dim() == 1 && tensor.numel() == size &&
                      tensor.is_contiguous() && address % 16 == 0,
                  op, ": ", name,
                  " must be what split_weight_checked returns for this weight and "
                  "precision, ",
                  dtype_string(type), " of shape (", size, ",), aligned to 16 bytes, got ",
                  dtype_string(tensor.scalar_type()), " of shape ", shape_string(tensor), ", ",
                  alignment_of(tensor.const_data_ptr()), " bytes");
}

void split_weight_if_changed(Tensor weight, Tensor split, Tensor checksum, std::string precision) {
  constexpr char kOp[] = "split_weight_if_changed";
  KeptWeight const kept(kOp, weight, precision);
  int64_t const bytes = kept.is_split ? kept.layout.bytes() : 0;
  check_kept(kOp, "split", split, weight, ScalarType::Byte, bytes);
  check_kept(kOp, "checksum", checksum, weight, ScalarType::Long, kChecksumWords);
  DeviceScope const scope(kOp, weight);
  if (kept.is_split) kept.split(kOp, split, checksum, /*always=*/false, scope.device());
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) {
  m.impl("split_weight", TORCH_BOX(&split_weight));
  m.impl("split_weight_checked", TORCH_BOX(&split_weight_checked));
  m.impl("split_weight_if_changed", TORCH_BOX(&split_weight_if_changed));
}

}  // namespace
}  // namespace cutlass_fused
