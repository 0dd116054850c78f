// An operand of a product whose rows are split into fp16 numbers first.
#pragma once

#include <optional>

#include "cutlass_fused/gemm/fp16x3/split_columns.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {

// Of a matrix whose rows are scattered (checks.hpp): along M or N, if its columns are not.
inline Major find_major(Tensor const& matrix, int64_t ld) {
  bool const has_columns =
      ld == -1 && matrix.dim() == 2 && matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0);
  return has_columns ? Major::kMn : Major::kK;
}

class SplitOperand {
 public:
  SplitOperand(int64_t rows, int64_t k, Engine engine)
      : layout_{rows, k, engine == Engine::kFp16x3} {}

  SplitLayout const& layout() const { return layout_; }
  Tensor const& tensor() const { return *tensor_; }
  SplitMatrix matrix() const {
    auto const* const bytes = static_cast<char const*>(tensor_->const_data_ptr());
    return {layout_, reinterpret_cast<__half const*>(bytes),
            reinterpret_cast<RowScale const*>(bytes + layout_.scales_offset())};
  }

  // What split_weight made before.
  void take(Tensor const& split) { tensor_ = split; }

  // On the device of `like`. The memory is given back while kernels run; the allocator reuses it in
  // stream order.
  // `folded`: split_rows.hpp.
  Status make(void const* data, int64_t ld, Major major, RowScale const* folded,
              Device const& device, cudaStream_t stream, Tensor const& like) {
    auto const* const from = static_cast<float const*>(data);
    tensor_ = allocate(like, {layout_.bytes()}, ScalarType::Byte);
    void* const to = tensor_->mutable_data_ptr();
    if (major == Major::kK) return run_split_rows(layout_, from, ld, to, folded, device, stream);
    std::optional<Tensor> workspace;
    int64_t const words = ColumnsWorkspace::words(layout_);
    if (words > 0) workspace = allocate(like, {words}, ScalarType::Int);
    return run_split_columns(layout_, from, ld, to, folded,
                             workspace ? workspace->mutable_data_ptr() : nullptr, device, stream);
  }

 private:
  SplitLayout layout_;
  std::optional<Tensor> tensor_;
};

}  // namespace cutlass_fused
