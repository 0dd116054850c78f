// Splits rows of fp32 numbers into fp16 numbers; split_rows.hpp has the formula.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

struct SplitRowsParams {
  int64_t rows, k;
  float const* from;
  int64_t ld;
  __half* to;
  int64_t pitch;
  RowScale* scales;
};

// Threads of a row in x, rows in y.
struct SplitBlock {
  static constexpr int kThreads = 256;
  static constexpr int kWidth = 8;  // numbers of a thread, side by side: 16 bytes of fp16
  static constexpr int kHeld = 4;   // so many times that stay in registers between the two passes
};

// 2^exponent, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(unsigned(exponent + 127) << 23);
}

// |value| as an integer: of two numbers the larger one has the larger bits, inf those above all
// numbers, NaN those above inf.
__device__ __forceinline__ unsigned magnitude(float value) {
  return __float_as_uint(value) & 0x7fffffffu;
}

struct TakeLargest {
  __device__ __forceinline__ unsigned operator()(unsigned a, unsigned b) const { return max(a, b); }
};

// 1 / h of a row whose largest number has this magnitude: its square brings that to 2^13 or more.
__device__ __forceinline__ int inverse_exponent(unsigned largest) {
  // A subnormal number's exponent is that of its leading bit.
  int const exponent =
      largest >= 0x00800000u ? int(largest >> 23) - 127 : 31 - __clz(int(largest | 1u)) - 149;
  return (14 - exponent) >> 1;
}

template <bool kAligned>
__device__ __forceinline__ void load_piece(float const* row, int64_t first, int64_t k,
                                           float (&to)[SplitBlock::kWidth]) {
  constexpr int kWidth = SplitBlock::kWidth;
  if (kAligned && first + kWidth <= k) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      *reinterpret_cast<float4*>(&to[i]) = *reinterpret_cast<float4 const*>(row + first + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = first + i < k ? row[first + i] : 0.0f;
  }
}

// What counts as lost of numbers of a scaled row.
template <bool kLow>
struct Loss {
  // Below, fewer than 22 digits are left of a number, or 11.
  static constexpr float kWhole = kLow ? 0x1p-13f : 0x1p-14f;
  // That many times what its rows lost, times the largest number that they can have been multiplied
  // with, a sum must be.
  static constexpr float kLeast = 0x1p15f * (kLow ? 0x1p22f : 0x1p11f);

  __device__ __forceinline__ static float of(float given, float scaled, float kept) {
    constexpr float kSmallest = 0x1p-126f;  // normal number
    if (fabsf(scaled) >= kWhole || given == 0.0f) return 0.0f;
    return fabsf(scaled) < kSmallest ? kSmallest : fabsf(scaled - kept);
  }

  // The power of two above.
  __device__ __forceinline__ static float find_least(float lost) {
    if (lost == 0.0f) return 0.0f;
    return __uint_as_float((__float_as_uint(lost * kLeast) & 0x7f800000u) + 0x00800000u);
  }
};

// Writes hi, and behind it lo; returns what both lack of the numbers.
template <bool kLow>
__device__ __forceinline__ float store_piece(float const (&from)[SplitBlock::kWidth], float inverse,
                                             __half* row, int64_t first) {
  constexpr int kWidth = SplitBlock::kWidth, kBlock = SplitLayout::kBlock;
  alignas(16) __half high[kWidth], low[kWidth];
  float lost = 0.0f;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    float const scaled = from[i] * inverse * inverse;
    high[i] = __float2half_rn(scaled);
    float kept = __half2float(high[i]);
    if constexpr (kLow) {
      low[i] = __float2half_rn((scaled - kept) / SplitLayout::kLowUnit);
      kept += __half2float(low[i]) * SplitLayout::kLowUnit;
    }
    lost += Loss<kLow>::of(from[i], scaled, kept);
  }
  __half* const to = row + (kLow ? first / kBlock * 2 * kBlock + first % kBlock : first);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(high);
  if constexpr (kLow) {
    *reinterpret_cast<uint4*>(to + kBlock) = *reinterpret_cast<uint4 const*>(low);
  }
  return lost;
}

template <bool kLow, bool kAligned>
__global__ void __launch_bounds__(SplitBlock::kThreads)
    split_rows(__grid_constant__ SplitRowsParams const params) {
  constexpr int kWidth = SplitBlock::kWidth, kHeld = SplitBlock::kHeld;
  constexpr int kMostRows = SplitBlock::kThreads / 32;
  __shared__ RowSlots<unsigned> slots[kMostRows];
  __shared__ RowSlots<float> lost_slots[kMostRows];
  wait_for_previous_kernel();
  allow_next_kernel();

  int64_t const step = int64_t(blockDim.x) * kWidth;
  int64_t const row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  bool const exists = row < params.rows;
  float const* const from = params.from + (exists ? row : 0) * params.ld;
  __half* const to = params.to + row * params.pitch;
  int64_t const k = exists ? params.k : 0, end = exists ? params.pitch / (kLow ? 2 : 1) : 0;

  float held[kHeld][kWidth];
  unsigned largest = 0;
  auto const take_largest = [&](float const(&piece)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) largest = max(largest, magnitude(piece[i]));
  };
  int64_t const first = int64_t(threadIdx.x) * kWidth;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) load_piece<kAligned>(from, first + i * step, k, held[i]);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) take_largest(held[i]);
  for (int64_t at = first + kHeld * step; at < k; at += step) {
    float piece[kWidth];
    load_piece<kAligned>(from, at, k, piece);
    take_largest(piece);
  }
  largest = reduce_row(largest, slots[threadIdx.y], 0u, TakeLargest{});

  bool const finite = largest < 0x7f800000u;
  int const exponent = finite && largest > 0 ? inverse_exponent(largest) : 0;
  float const inverse = power_of_two(exponent);
  float lost = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first + i * step < end) lost += store_piece<kLow>(held[i], inverse, to, first + i * step);
  }
  for (int64_t at = first + kHeld * step; at < end; at += step) {
    float piece[kWidth];
    load_piece<kAligned>(from, at, k, piece);
    lost += store_piece<kLow>(piece, inverse, to, at);
  }
  lost = reduce_row(lost, lost_slots[threadIdx.y], 0.0f, TakeSum{});
  if (exists && threadIdx.x == 0) {
    float const least = finite ? Loss<kLow>::find_least(lost) : __uint_as_float(0x7f800000u);
    params.scales[row] = RowScale::make(power_of_two(-exponent), least);
  }
}

}  // namespace cutlass_fused
