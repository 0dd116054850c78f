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
  RowScale const* folded;  // of each k, or null
  ToClear to_clear;        // by split_rows
  uint64_t* marks;         // of rows that are renewed, or null
  bool is_new;             // they are not written yet

  static SplitRowsParams make(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                              RowScale const* folded) {
    auto* const bytes = static_cast<char*>(to);
    return {layout.rows,
            layout.k,
            from,
            ld,
            reinterpret_cast<__half*>(bytes),
            layout.pitch(),
            reinterpret_cast<RowScale*>(bytes + layout.scales_offset()),
            folded,
            {},
            nullptr,
            false};
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
  __device__ __forceinline__ RowPower(bool finite, int exponent)
      : finite(finite), exponent(exponent) {}

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

  __device__ __forceinline__ float scale(float value) const { return value * inverse * inverse; }
  __device__ __forceinline__ bool loses(float value) const { return magnitude(value) - 1 < losing; }
};

// Products across the parts of a matrix are for GPUs of 9.0: others need no code for it.
template <bool kIsForThem>
__device__ __forceinline__ constexpr bool is_compiled() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return !kIsForThem;
#else
  return true;
#endif
}

// Numbers that are multiplied by the powers of two of their k before they are split, (h[k] /
// h[0])^2: what they have in common, h[0]^2, goes to the scale of the row, as an integer. Powers of
// a matrix are near each other, and few products with them are no fp32 number. Of these it is
// counted what they lost; one that is infinite has its row computed in fp32.
class Folded {
 public:
  __device__ __forceinline__ explicit Folded(RowScale const& first)
      : exponent_(exponent_of(first)), inverse_(power_of_two(-exponent_)) {}

  // h[k] / h[0]
  __device__ __forceinline__ float ratio(RowScale const& scale) const {
    return scale.h() * inverse_;
  }
  // `is_cut`: it does not hold what it should.
  __device__ __forceinline__ static float multiply(float value, float ratio, bool& is_cut) {
    constexpr unsigned kLeastNormal = 0x00800000u;
    float const product = value * ratio * ratio;
    is_cut |= magnitude(product) < kLeastNormal && value != 0.0f;
    return product;
  }
  // With h[0] in it. Products of a row whose h is no fp32 number are none either, or nearly so.
  __device__ __forceinline__ RowPower find_row(RowPower const& power) const {
    constexpr int kMost = 126;
    int const exponent = power.exponent - exponent_;
    bool const is_number = exponent >= -kMost && exponent <= kMost;
    return {power.finite && is_number, max(min(exponent, kMost), -kMost)};
  }

 private:
  __device__ __forceinline__ static int exponent_of(RowScale const& scale) {
    return int(__float_as_uint(scale.packed) >> 23) - 127;
  }

  int exponent_;
  float inverse_;
};

// Those of kSplitWidth k from `first` on, which is a multiple of that; behind `k` there are none,
// and nothing is lost.
__device__ __forceinline__ void load_scales(RowScale const* scales, int64_t first, int64_t k,
                                            RowScale (&to)[kSplitWidth]) {
  if (first + kSplitWidth <= k) {
#pragma unroll
    for (int i = 0; i < kSplitWidth; i += 4) {
      *reinterpret_cast<float4*>(&to[i]) = *reinterpret_cast<float4 const*>(&scales[first + i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kSplitWidth; ++i) {
      to[i] = first + i < k ? scales[first + i] : RowScale{1.0f};
    }
  }
}

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
    bool const is_trusted = power.finite && lost < kAll;
    float const least = is_trusted ? find_least(lost) : __uint_as_float(0x7f800000u);
    return RowScale::make(power_of_two(-power.exponent), least);
  }

  // What fp32 has no room for of a number that was multiplied by a power of two: half of the least
  // fp32 number at most, twice.
  __device__ __forceinline__ static uint64_t units_of_cut(RowPower const& power) {
    constexpr int kUnitExponent = kLow ? -52 : -41, kCut = -148, kMost = 48;
    int const exponent = max(min(2 * power.exponent + kCut - kUnitExponent, kMost), 0);
    return uint64_t(1) << exponent;
  }

  // The units of this operand that count as much as what rows of the other one lost, of which the
  // sum of `least` is given: a number of this one is as large as one of that one can be.
  __device__ __forceinline__ static uint64_t units_of(float least) {
    constexpr float kUnits = 1 << -kLeastExponent;
    return least * kUnits < float(kAll) ? uint64_t(least * kUnits) : kAll;
  }

 private:
  // As good as all is lost. Rows that fit into 31 bits lose less.
  static constexpr uint64_t kAll = uint64_t(1) << 48;

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

  __device__ __forceinline__ SplitPair(float first, float second)
      : scaled{first, second}, high(__float22half2_rn(scaled)) {
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
    SplitPair<kLow> const pair(split.scale(from[i]), split.scale(from[i + 1]));
    high[i / 2] = pair.high;
    if constexpr (kLow) low[i / 2] = pair.low;
    loses |= split.loses(from[i]) || split.loses(from[i + 1]);
  }
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(high);
  if constexpr (kLow) {
    *reinterpret_cast<uint4*>(to + SplitLayout::kBlock) = *reinterpret_cast<uint4 const*>(low);
  }
  if (!loses) return;
#pragma unroll
  for (int i = 0; i < kSplitWidth; i += 2) {
    SplitPair<kLow> const pair(split.scale(from[i]), split.scale(from[i + 1]));
    float2 const kept = pair.kept();
    lost.add(from[i], pair.scaled.x, kept.x);
    lost.add(from[i + 1], pair.scaled.y, kept.y);
  }
}

}  // namespace cutlass_fused
