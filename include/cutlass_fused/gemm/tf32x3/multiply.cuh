// tf32x3 on tensor cores: three products of TF32 numbers for one of fp32 numbers. Each number is
// split in registers into the TF32 number next to it, hi, and what tensor cores read of the rest,
// lo:
//
//   v = hi + lo, but for 2^-21 |v| at most;   x * w = hi.hi + hi.lo + lo.hi, but for 5 * 2^-22 |x
//   w|
//
// TF32 has the exponents of fp32, so that no number is lost beside a larger one, whatever the rows'
// scales: the error depends on x * w alone, however the matrices lie. NVIDIA's CUTLASS calls it
// 3xTF32 (example 27).
#pragma once

#include <cuda_runtime.h>

#include "cute/arch/mma_sm80.hpp"

namespace cutlass_fused::tf32x3 {

// Numbers are multiplied by this first: TF32 has 13 digits less than fp32, so that what lies below
// its smallest number, a subnormal one, would be lost. Where a number or a sum becomes too large,
// it is infinite, and is repaired.
constexpr float kScale = 0x1p13f, kUnscale = 1.0f / (kScale * kScale);

// 32 rows by 16 of K, as instructions of 16 rows by 8 of K read them.
struct SplitBlock {
  uint32_t hi[4][4], lo[4][4];  // [slot][i], Stage::read

  __device__ explicit SplitBlock(float const (&values)[4][4]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float const v = values[i / 4][i % 4] * kScale;
      uint32_t& high = hi[i / 4][i % 4];
      // In front of the 13 bits that tensor cores do not read. NaN may become a number here, of
      // which lo is NaN.
      high = (__float_as_uint(v) + 0x1000u) & 0xffffe000u;
      lo[i / 4][i % 4] = __float_as_uint(v - __uint_as_float(high));
    }
  }
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

// Adds `from` to `to`, and clears it.
__device__ __forceinline__ void move_sums(WarpSums& from, WarpSums& to) {
  add_sums(from, to);
#pragma unroll
  for (int i = 0; i < 32; ++i) sum_at(from, i) = 0.0f;
}

// sums = a * b over 16 of K. The small products come first: the tensor cores' accumulator
// truncates, the more the larger it is.
__device__ __forceinline__ void multiply(SplitBlock const& a, SplitBlock const& b, WarpSums& sums) {
#pragma unroll
  for (int i = 0; i < 32; ++i) sum_at(sums, i) = 0.0f;
#pragma unroll
  for (int pass = 0; pass < 3; ++pass) {
    auto const& of_a = pass == 0 ? a.lo : a.hi;
    auto const& of_b = pass == 1 ? b.lo : b.hi;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float (&c)[4] = sums[i][j];
          cute::SM80_16x8x8_F32TF32TF32F32_TN::fma(
              c[0], c[1], c[2], c[3], of_a[2 * i][k], of_a[2 * i + 1][k], of_a[2 * i][k + 1],
              of_a[2 * i + 1][k + 1], of_b[j][k], of_b[j][k + 1], c[0], c[1], c[2], c[3]);
        }
      }
    }
  }
}

}  // namespace cutlass_fused::tf32x3
