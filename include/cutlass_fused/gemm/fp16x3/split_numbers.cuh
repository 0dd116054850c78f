// What the kernels that split fp32 numbers into fp16 ones share; split_rows.hpp has the formula.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

struct SplitRowsParams {
  int64_t rows, k;
  float const* from;
  int64_t ld;
  __half* to;
  int64_t pitch;
  RowScale* scales;

  static SplitRowsParams make(SplitLayout const& layout, float const* from, int64_t ld, void* to) {
    auto* const bytes = static_cast<char*>(to);
    return {layout.rows,
            layout.k,
            from,
            ld,
            reinterpret_cast<__half*>(bytes),
            layout.pitch(),
            reinterpret_cast<RowScale*>(bytes + layout.scales_offset())};
  }
};

constexpr int kSplitWidth = 8;  // numbers of a thread, side by side: 16 bytes of fp16

// 2^exponent, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(unsigned(exponent + 127) << 23);
}

// |value| as an integer: of two numbers the larger one has the larger bits, inf those above all
// numbers, NaN those above inf.
__device__ __forceinline__ unsigned magnitude(float value) {
  return __float_as_uint(value) & 0x7fffffffu;
}

// 1 / h of a row whose largest number has this magnitude: its square brings that to 2^13 or more.
__device__ __forceinline__ int inverse_exponent(unsigned largest) {
  // A subnormal number's exponent is that of its leading bit.
  int const exponent =
      largest >= 0x00800000u ? int(largest >> 23) - 127 : 31 - __clz(int(largest | 1u)) - 149;
  return (14 - exponent) >> 1;
}

// What is known of a row when its largest number is.
struct RowPower {
  bool finite;
  int exponent;  // of 1 / h

  __device__ __forceinline__ explicit RowPower(unsigned largest)
      : finite(largest < 0x7f800000u),
        exponent(finite && largest > 0 ? inverse_exponent(largest) : 0) {}

  __device__ __forceinline__ float inverse() const { return power_of_two(exponent); }
  // The magnitude of a number that comes to be `scaled`, a power of two.
  __device__ __forceinline__ unsigned magnitude_of(float scaled) const {
    float const h = power_of_two(-exponent);
    return magnitude(h * scaled * h);
  }
};

// How the numbers of a row are split.
template <bool kLow>
struct RowSplit {
  float inverse;    // 1 / h
  unsigned losing;  // a number whose magnitude less one is below this one loses digits

  __device__ __forceinline__ explicit RowSplit(RowPower const& power);
};

// What numbers of a scaled row lost, in whole units: a sum of them does not depend on the order.
template <bool kLow>
class Loss {
 public:
  static constexpr int kMostNumbers = 64;
  // Below, fewer than 22 digits are left of a number, or 11.
  static constexpr float kWhole = kLow ? 0x1p-13f : 0x1p-14f;

  // Of up to kMostNumbers. What a number lost is rounded up.
  __device__ __forceinline__ void add(float given, float scaled, float kept) {
    constexpr float kVanished = 0x1p-126f;  // at most, and less than a unit
    float lost = scaled == 0.0f ? fminf(fabsf(given), kVanished) : fabsf(scaled - kept);
    if (fabsf(scaled) >= kWhole) lost = 0.0f;
    reading_ = __fadd_ru(reading_, lost);
  }
  __device__ __forceinline__ unsigned units() const {
    return __float_as_uint(reading_) - __float_as_uint(kZero);
  }

  // Of a row, of which so many units are lost.
  __device__ __forceinline__ static RowScale make_scale(RowPower const& power, uint64_t lost) {
    float const least = power.finite ? find_least(lost) : __uint_as_float(0x7f800000u);
    return RowScale::make(power_of_two(-power.exponent), least);
  }

 private:
  // The last digit of a number between this one and its double is the unit: 2^-52, or 2^-41. A
  // number loses 2^16 of them at most.
  static constexpr float kZero = kLow ? 0x1p-29f : 0x1p-18f;
  // So many times what its rows lost, times the largest number that they can have been multiplied
  // with, a sum must be: 2^15 * 2^22 (or 2^11) units.
  static constexpr int kLeastExponent = -15;

  // The power of two above.
  __device__ __forceinline__ static float find_least(uint64_t lost) {
    return lost == 0 ? 0.0f : power_of_two(64 - __clzll(int64_t(lost)) + kLeastExponent);
  }

  float reading_ = kZero;
};

template <bool kLow>
__device__ __forceinline__ RowSplit<kLow>::RowSplit(RowPower const& power)
    : inverse(power.inverse()),
      losing(max(power.magnitude_of(Loss<kLow>::kWhole), 1u) - 1) {}  // zero loses nothing

// Where hi of the first-th number of a row stands.
template <bool kLow, class Int>
__device__ __forceinline__ Int find_place(Int first) {
  constexpr int kBlock = SplitLayout::kBlock;
  return kLow ? first / kBlock * 2 * kBlock + first % kBlock : first;
}

// Two numbers, side by side.
template <bool kLow>
struct SplitPair {
  float2 scaled;
  __half2 high, low;

  __device__ __forceinline__ SplitPair(float first, float second, RowSplit<kLow> const& split)
      : scaled{first * split.inverse * split.inverse, second * split.inverse * split.inverse},
        high(__float22half2_rn(scaled)) {
    if constexpr (kLow) {
      float2 const kept = __half22float2(high);
      constexpr float kUnits = 1 / SplitLayout::kLowUnit;
      low = __float22half2_rn({(scaled.x - kept.x) * kUnits, (scaled.y - kept.y) * kUnits});
    }
  }

  // What hi and lo say.
  __device__ __forceinline__ float2 kept() const {
    float2 sum = __half22float2(high);
    if constexpr (kLow) {
      float2 const rest = __half22float2(low);
      sum.x += rest.x * SplitLayout::kLowUnit;
      sum.y += rest.y * SplitLayout::kLowUnit;
    }
    return sum;
  }
};

// Writes hi, and behind it lo. Few pieces hold a number that loses digits: what those lost is found
// apart.
template <bool kLow>
__device__ __forceinline__ void store_piece(float const (&from)[kSplitWidth],
                                            RowSplit<kLow> const& split, __half* to,
                                            Loss<kLow>& lost) {
  alignas(16) __half2 high[kSplitWidth / 2], low[kSplitWidth / 2];
  bool loses = false;
#pragma unroll
  for (int i = 0; i < kSplitWidth; i += 2) {
    SplitPair<kLow> const pair(from[i], from[i + 1], split);
    high[i / 2] = pair.high;
    if constexpr (kLow) low[i / 2] = pair.low;
    loses |= magnitude(from[i]) - 1 < split.losing || magnitude(from[i + 1]) - 1 < split.losing;
  }
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(high);
  if constexpr (kLow) {
    *reinterpret_cast<uint4*>(to + SplitLayout::kBlock) = *reinterpret_cast<uint4 const*>(low);
  }
  if (!loses) return;
#pragma unroll
  for (int i = 0; i < kSplitWidth; i += 2) {
    SplitPair<kLow> const pair(from[i], from[i + 1], split);
    float2 const kept = pair.kept();
    lost.add(from[i], pair.scaled.x, kept.x);
    lost.add(from[i + 1], pair.scaled.y, kept.y);
  }
}

}  // namespace cutlass_fused
