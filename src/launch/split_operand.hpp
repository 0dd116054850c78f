// An operand of a product whose rows are split into fp16 numbers first.
#pragma once

#include <optional>

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {

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
  Status make(void const* from, int64_t ld, Device const& device, cudaStream_t stream,
              Tensor const& like) {
    tensor_ = allocate(like, {layout_.bytes()}, ScalarType::Byte);
    return run_split_rows(layout_, static_cast<float const*>(from), ld, tensor_->mutable_data_ptr(),
                          device, stream);
  }

 private:
  SplitLayout layout_;
  std::optional<Tensor> tensor_;
};

}  // namespace cutlass_fused
