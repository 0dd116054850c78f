// TF32 with x rounded before the product, weight inside it.
//
// An fp32 operand has to be rounded to TF32 before a tensor core sees it (it would truncate).
// Rounding both operands' fragments on their way from shared memory takes issue slots from the
// tensor cores: 0.615 ms at M=1024, N=K=8192 on an H200, where truncated operands take 0.538. With
// x rounded by a pass of its own (0.02 ms) and weight in the kernel it is 0.542. The pass needs a
// copy of x; weight, the larger operand of a Linear, needs none.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/epilogue/nodes_sm80.hpp"
#include "cutlass_fused/gemm/split_tf32.hpp"

// CUTLASS's warp-level product of an operand that is TF32 already and one that is not: the
// conversion of the first is the identity, that of the second rounds.
template <class WarpShape, class Instruction, class LayoutA, class LayoutB, class LayoutC,
          int kPartitionsK, bool kRowMajorAccumulators>
struct cutlass::gemm::warp::DefaultMmaTensorOp<
    WarpShape, Instruction, cutlass::tfloat32_t, LayoutA, float, LayoutB, float, LayoutC,
    cutlass::arch::OpMultiplyAdd, kPartitionsK, kRowMajorAccumulators> {
  using Mma = cutlass::arch::Mma<Instruction, 32,                                    //
                                 cutlass::tfloat32_t, cutlass::layout::RowMajor,     //
                                 cutlass::tfloat32_t, cutlass::layout::ColumnMajor,  //
                                 float, cutlass::layout::RowMajor,                   //
                                 cutlass::arch::OpMultiplyAdd>;
  using Policy = MmaTensorOpPolicy<Mma, cutlass::MatrixShape<1, 1>>;
  using Type = MmaTensorOp<WarpShape, cutlass::tfloat32_t, LayoutA, float, LayoutB, float, LayoutC,
                           Policy, kPartitionsK, kRowMajorAccumulators>;
};

namespace cutlass_fused {

// rounded[row, k] = TF32(x[row, k]), four elements a thread. K is a multiple of four and rows start
// on 16 bytes: other operands take the narrow kernels.
template <class Math>
__global__ void __launch_bounds__(256)
    round_rows_to_tf32(float const* x, int64_t ldx, int64_t rows, int64_t k, float* rounded) {
  int64_t const pieces = k / 4;  // of a row
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float4 const* const from = reinterpret_cast<float4 const*>(x + row * ldx);
    float4* const to = reinterpret_cast<float4*>(rounded + row * k);
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < pieces;
         i += int64_t(gridDim.x) * blockDim.x) {
      float4 const value = from[i];
      to[i] = {round_to_tf32(value.x), round_to_tf32(value.y), round_to_tf32(value.z),
               round_to_tf32(value.w)};
    }
  }
}

}  // namespace cutlass_fused
