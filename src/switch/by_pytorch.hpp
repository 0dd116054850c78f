// Products that cuBLAS computes anyway, and PyTorch in the same precision: its own calls of cuBLAS
// take less of the host's time, and add a bias within the product.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "launch/cublas/plain_product.hpp"

namespace cutlass_fused {

// What PyTorch has at an op's key is called as long as this lives, and not the switch.
class Inside {
 public:
  Inside() : before_(is_inside()) { is_inside() = true; }
  ~Inside() { is_inside() = before_; }
  Inside(Inside const&) = delete;
  Inside& operator=(Inside const&) = delete;

  static bool& is_inside() {
    static thread_local bool inside = false;
    return inside;
  }

 private:
  bool before_;
};

// Of the library of the ops; null: it has none.
inline IsByCublas* is_by_cublas = nullptr;

inline bool multiplies_in_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

// Of fp32 matrices a (M, K) and b (K, N) with memory of their own, or of batches of them.
inline bool is_by_pytorch(at::Tensor const& a, at::Tensor const& b, bool in_tf32) {
  if (is_by_cublas == nullptr || !a.is_cuda() || in_tf32 != multiplies_in_tf32()) return false;
  bool const is_batch = a.dim() == 3;
  PlainProduct const product{is_batch ? a.size(0) : 1,
                             a.size(-2),
                             b.size(-1),
                             a.size(-1),
                             a.const_data_ptr(),
                             b.const_data_ptr(),
                             {is_batch ? a.stride(0) : 0, a.stride(-2), a.stride(-1)},
                             {is_batch ? b.stride(0) : 0, b.stride(-1), b.stride(-2)},
                             a.device().index(),
                             in_tf32};
  return is_by_cublas(&product);
}

}  // namespace cutlass_fused
