// tf32x3 on tensor cores: three products of TF32 numbers for one of fp32 numbers. Each number is
// split in registers into the TF32 number next to it, hi, and what tensor cores read of the rest,
// lo:
//
//   v = hi + lo, but for 2^-21 |v| at most;   x * w = hi.hi + hi.lo + lo.hi, but for 5 * 2^-22 |x
//   w|
//
// TF32 has the exponents of fp32, so that no number is lost beside a larger one, whatever the rows'
// scales: the error depends on x * w alone, however the matrices lie. NVIDIA's CUTLASS calls it
// 3xTF32 (example 27). Under "tf32" the first of the three is all that is computed.
#pragma once

#include <cuda_runtime.h>

#include "cute/arch/mma_sm80.hpp"

namespace cutlass_fused::tf32x3 {

// Numbers are multiplied by this first: TF32 has 13 digits less than fp32, so that what lies below
// its smallest number, a subnormal one, would be lost. Where a number or a sum becomes too large,
// it is infinite, and is repaired.
constexpr float kScale = 0x1p13f, kUnscale = 1.0f / (kScale * kScale);

// A number times kScale: the TF32 number next to it, and, unless kInTf32, what that lacks.
template <bool kInTf32>
__device__ __forceinline__ void split_number(float number, uint32_t& high, uint32_t& low) {
  float const value = number * kScale;
  // In front of the 13 bits that tensor cores do not read. NaN may become a number here, of which
  // the rest is NaN.
  high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
  if constexpr (kInTf32) {
    if (isnan(value)) high = __float_as_uint(value);
  } else {
    low = __float_as_uint(value - __uint_as_float(high));
  }
}

// 32 rows by 16 of K, as instructions of 16 rows by 8 of K read them: [slot][i], Stage::read.
template <bool kInTf32>
struct SplitBlock {
  uint32_t high[4][4], low[4][4];

  __device__ __forceinline__ void split(float const (&values)[4][4]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      split_number<kInTf32>(values[i / 4][i % 4], high[i / 4][i % 4], low[i / 4][i % 4]);
    }
  }
};

// What multiplies numbers of this type. gemm/mixed/multiply.cuh has that of 16-bit ones.
template <class T, bool kInTf32>
struct BlockOf {
  using type = SplitBlock<kInTf32>;
};

// Sums of 32 x 32 products of a warp: [rows of 16][columns of 8][the instruction's own].
using WarpSums = float[2][4][4];

__device__ __forceinline__ float& sum_at(WarpSums& sums, int i) {
  return sums[i / 16][i / 4 % 4][i % 4];
}

__device__ __forceinline__ void add_sums(WarpSums& from, WarpSums& to) {
#pragma unroll
  for (int i = 0; i < 32; ++i) sum_at(to, i) += sum_at(from, i);
}

// sums += a * b over 16 of K; or sums = a * b, if it is the first: a zero that is written as such
// takes no registers.
template <bool kFirst>
__device__ __forceinline__ void add_product(uint32_t const (&a)[4][4], uint32_t const (&b)[4][4],
                                            WarpSums& sums) {
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float (&d)[4] = sums[i][j];
        auto const c = [&](int l) { return kFirst && k == 0 ? 0.0f : d[l]; };
        cute::SM80_16x8x8_F32TF32TF32F32_TN::fma(
            d[0], d[1], d[2], d[3], a[2 * i][k], a[2 * i + 1][k], a[2 * i][k + 1],
            a[2 * i + 1][k + 1], b[j][k], b[j][k + 1], c(0), c(1), c(2), c(3));
      }
    }
  }
}

// sums = a * b over 16 of K. The small products come first: the tensor cores' accumulator
// truncates, the more the larger it is.
template <bool kInTf32>
__device__ __forceinline__ void multiply(SplitBlock<kInTf32> const& a, SplitBlock<kInTf32> const& b,
                                         WarpSums& sums) {
  if constexpr (!kInTf32) {
    add_product<true>(a.low, b.high, sums);
    add_product<false>(a.high, b.low, sums);
  }
  add_product<kInTf32>(a.high, b.high, sums);
}

}  // namespace cutlass_fused::tf32x3
