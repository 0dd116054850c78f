// Products by the cuBLAS that PyTorch loaded, without PyTorch's dispatcher. The dispatcher would
// lead back here in a program that has PyTorch's own products computed by ours, and it follows
// PyTorch's settings where the caller has asked for a precision.
#pragma once

#include "cutlass_fused/plan/overrides.hpp"
#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// A matrix of M or N rows by K columns. Its elements lie side by side along K, ld being the
// distance between rows, or along M or N, ld being the distance between columns.
struct CublasOperand {
  void const* data;
  int64_t ld;
  int64_t batch_stride;  // elements from one matrix of a batch to the next; 0: all are the same
  Major major;
};

// y[b] = x[b] @ weight[b].T for all b. `type` is that of x and weight; y is of that or of fp32.
// Sums are always of fp32. `precision` concerns fp32 matrices: kIeee multiplies in fp32, kTf32 in
// TF32.
struct CublasProduct {
  int64_t batch, m, n, k;
  CublasOperand x, weight;
  void* y;
  int64_t ldy, y_batch_stride;
  DataType type, y_type;
  Precision precision;
};

// Whether the functions were found. They are looked for once.
bool has_cublas();

// What no plan may have: cuBLAS, if it cannot be called.
inline Struck strike_missing(Struck struck = {}) {
  return has_cublas() ? struck : struck.with(Part::kCublas);
}

// On the current stream of `device`, the current GPU. K is not 0, and nothing is read from y.
// PyTorch's settings change nothing of the result, and stay as they are. False where cuBLAS or
// PyTorch refuses, and in a capture on a thread that has no handle yet.
bool multiply_by_cublas(CublasProduct const& product, Device const& device);

}  // namespace cutlass_fused
