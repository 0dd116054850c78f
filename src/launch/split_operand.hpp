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

  // Memory for what `make` writes of a matrix that lies so, on the device of `like`. It is given
  // back while kernels run; the allocator reuses it in stream order.
  void reserve(Major major, Tensor const& like) {
    major_ = major;
    tensor_ = allocate(like, {layout_.bytes()}, ScalarType::Byte);
    int64_t const words = major == Major::kK ? 0 : ColumnsWorkspace::words(layout_);
    if (words > 0) workspace_ = allocate(like, {words}, ScalarType::Int);
  }

  // What the launches before `make` can do for it.
  ToClear to_clear() const {
    if (!workspace_) return {};
    auto* const bytes = static_cast<char*>(tensor_->mutable_data_ptr());
    return {static_cast<unsigned*>(workspace_->mutable_data_ptr()),
            ColumnsWorkspace::words(layout_),
            reinterpret_cast<RowScale*>(bytes + layout_.scales_offset()), layout_.rows};
  }

  // `folded`: split_rows.hpp. `behind`: what of the next operand is cleared; only by a split of a
  // matrix that lies along K. `is_clear`: it has been done for this one.
  Status make(void const* data, int64_t ld, RowScale const* folded, ToClear const& behind,
              bool is_clear, Device const& device, cudaStream_t stream) {
    auto const* const from = static_cast<float const*>(data);
    void* const to = tensor_->mutable_data_ptr();
    if (major_ == Major::kK) {
      return run_split_rows(layout_, from, ld, to, folded, behind, device, stream);
    }
    return run_split_columns(layout_, from, ld, to, folded,
                             workspace_ ? workspace_->mutable_data_ptr() : nullptr, is_clear,
                             device, stream);
  }

 private:
  SplitLayout layout_;
  Major major_ = Major::kK;
  std::optional<Tensor> tensor_, workspace_;
};

}  // namespace cutlass_fused
