// fp32 products by the cuBLAS that PyTorch loaded, without PyTorch's dispatcher. The dispatcher
// would lead back here in a program that has PyTorch's own products computed by ours, and it
// follows PyTorch's setting of TF32 where the caller has asked for a precision.
#pragma once

#include "cutlass_fused/gemm/tf32x3/operands.hpp"
#include "cutlass_fused/plan/overrides.hpp"
#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// Whether the functions were found. They are looked for once.
bool has_cublas_fp32();

// What no plan of this problem may have: cuBLAS, if it cannot be called.
inline Struck strike_missing(Problem const& problem, Struck struck = {}) {
  bool const calls = spec_of(problem.math).type == DataType::kFloat32;
  return calls && !has_cublas_fp32() ? struck.with(Part::kCublas) : struck;
}

// y[b] = x[b] @ weight[b].T for all b, on the current stream of `device`, the current GPU. y is of
// fp32, K is not 0, and nothing is read from y. kIeee multiplies in fp32, kTf32 in TF32, whatever
// PyTorch's settings say; these stay as they are. False where cuBLAS or PyTorch refuses, and in a
// capture on a thread that has no handle yet.
bool multiply_by_cublas_fp32(FloatProduct const& product, Precision precision,
                             Device const& device);

}  // namespace cutlass_fused
