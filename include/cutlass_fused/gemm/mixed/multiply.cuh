// Products of 16-bit numbers with fp32 ones on tensor cores. A number of fp16 or bf16 is one of
// TF32, so that two products of TF32 numbers give what takes three where both are of fp32:
//
//   w = hi + lo, but for 2^-21 |w| at most;   x * w = x.hi + x.lo, but for 2^-21 |x w|
#pragma once

#include "cutlass_fused/common/data_type.hpp"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"

namespace cutlass_fused::tf32x3 {

// The values of a NarrowStage times kScale, which is exact: subnormal numbers become normal ones.
template <class T>
struct ExactBlock {
  uint32_t high[4][4];

  __device__ __forceinline__ void split(uint2 const (&values)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      alignas(8) T four[4];
      *reinterpret_cast<uint2*>(four) = values[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) high[i][j] = __float_as_uint(to_float(four[j]) * kScale);
    }
  }
};

template <>
struct BlockOf<__half, false> {
  using type = ExactBlock<__half>;
};
template <>
struct BlockOf<__nv_bfloat16, false> {
  using type = ExactBlock<__nv_bfloat16>;
};

// As multiply of two SplitBlocks.
template <class T>
__device__ __forceinline__ void multiply(ExactBlock<T> const& a, SplitBlock<false> const& b,
                                         WarpSums& sums) {
  add_product<true>(a.high, b.low, sums);
  add_product<false>(a.high, b.high, sums);
}

}  // namespace cutlass_fused::tf32x3
