// What a product of fp32 matrices reads as they lie in memory: in either order, in batches.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A matrix of M or N rows by K columns. Its elements lie side by side along K, ld being the
// distance between rows, or along M or N, ld being the distance between columns.
struct FloatOperand {
  float const* data;
  int64_t ld;
  int64_t batch_stride;  // elements from one matrix of a batch to the next; 0: all are the same
  Major major;
};

// y[b, m, n] = epilogue(sum_k x[b, m, k] * weight[b, n, k])
struct FloatProduct {
  int64_t batch, m, n, k;
  FloatOperand x, weight;
  void* y;
  int64_t ldy, y_batch_stride;
  DataType y_type;
  bool in_tf32 = false;  // numbers are rounded to TF32
};

// Whether pieces of 16 bytes can be copied.
inline bool has_whole_pieces(FloatOperand const& operand) {
  return reinterpret_cast<uintptr_t>(operand.data) % 16 == 0 && operand.ld % 4 == 0 &&
         operand.batch_stride % 4 == 0;
}

inline FloatProduct make_float_product(GemmArgs const& gemm) {
  auto const operand = [](void const* data, int64_t ld, Major major) {
    return FloatOperand{static_cast<float const*>(data), ld, /*batch_stride=*/0, major};
  };
  return {1,
          gemm.m,
          gemm.n,
          gemm.k,
          operand(gemm.x, gemm.ldx, gemm.x_major),
          operand(gemm.weight, gemm.ldw, gemm.weight_major),
          gemm.y,
          gemm.ldy,
          0,
          gemm.y_type};
}

}  // namespace cutlass_fused
