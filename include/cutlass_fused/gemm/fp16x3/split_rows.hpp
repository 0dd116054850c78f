// Rows of fp32 numbers as fp16 numbers, for the engines fp16x3 and fp16x1.
//
//   x[r, k] = (hi[r, k] + 2^-11 * lo[r, k]) * h[r]^2,   h[r] a power of two
//
// The largest number of a row comes to lie between 2^13 and 2^15. h^2 has an even exponent, hence h
// is exact. hi and lo keep 22 bits of every number down to 2^-27 of the largest, hi alone 11 down
// to 2^-28. Of smaller ones they lose more: up to 2^-36, or 2^-25.
//
// What a row lost in all bounds what a sum of products with it may lack. It is counted in units of
// 2^-52 (fp16x1: 2^-41), so that any order of the numbers gives the same. Where the sum is so small
// that this would count, or a number is not finite, the product comes out as NaN, and the repair
// (repair_rows.hpp) computes it in fp32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>

#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// h of a row, and `least`. A sum of products with this row, before the scales are taken back, is to
// be trusted if it is larger than `least`. One that is not may be wrong by more than 2^-22 of
// itself (fp16x1: 2^-11), because of what the row lost. `least` is 0 where the row lost nothing,
// infinite where it is not finite. Both are powers of two, whose exponents stand in one number:
// that of h in its place, that of `least` at the head of the significand.
struct RowScale {
  float packed;

  CUTLASS_FUSED_HOST_DEVICE static RowScale make(float h, float least) {
    return {from_bits(to_bits(h) | to_bits(least) >> kShift)};
  }
  CUTLASS_FUSED_HOST_DEVICE float h() const { return from_bits(to_bits(packed) & ~kSignificand); }
  CUTLASS_FUSED_HOST_DEVICE float least() const {
    return from_bits((to_bits(packed) & kSignificand) << kShift);
  }
  CUTLASS_FUSED_HOST_DEVICE bool has_lost() const { return (to_bits(packed) & kSignificand) != 0; }

 private:
  static constexpr uint32_t kSignificand = 0x007fffffu;
  static constexpr int kShift = 8;

  CUTLASS_FUSED_HOST_DEVICE static uint32_t to_bits(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
  }
  CUTLASS_FUSED_HOST_DEVICE static float from_bits(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
  }
};

// How a split matrix lies in memory: rows of fp16 numbers.
struct SplitLayout {
  // A block of K: so many hi lie side by side, then as many lo. Each are 128 bytes, the width of a
  // swizzle: also where an operand lies along the other side, hi and lo are copied whole.
  static constexpr int kBlock = 64;
  static constexpr float kLowUnit = 0x1p-11f;  // of lo

  int64_t rows, k;
  bool has_low;  // fp16x3; else fp16x1

  // fp16 numbers of a row, what pads it included. TMA asks for whole 16 bytes.
  int64_t pitch() const {
    return has_low ? ceil_div(k, kBlock) * kBlock * 2 : ceil_div(k, int64_t(8)) * 8;
  }
  // The matrix, then a RowScale for each row.
  int64_t scales_offset() const { return ceil_div(rows * pitch() * 2, int64_t(256)) * 256; }
  int64_t bytes() const { return scales_offset() + rows * int64_t(sizeof(RowScale)); }
};

// A split matrix, as kernels read it.
struct SplitMatrix {
  SplitLayout layout;
  __half const* rows;
  RowScale const* scales;
};

// The numbers of a row that a kernel multiplies, of K given ones: all that lie there, since zeros
// pad them.
template <class Math>
int64_t multiplied_k(int64_t k) {
  if (!splits_rows(Math::kEngine)) return k;
  return SplitLayout{0, k, Math::kEngine == Engine::kFp16x3}.pitch();
}

// Words that a kernel sets to zero for the one behind it.
struct ToClear {
  unsigned* words = nullptr;
  int64_t count = 0;
  RowScale* scales = nullptr;
  int64_t rows = 0;
};

// Of a matrix that lies along K; split_columns.hpp is for others. `to` has layout.bytes() bytes,
// aligned to 16.
//
// `folded`: what is split is x[r, k] * folded[k].h()^2, and the rows count as lost what the folded
// ones lost too; null: x. The parts of a matrix serve products that sum along its rows and products
// that sum across them: there the scale of a row belongs to one k, and goes to the other operand.
Status run_split_rows(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                      RowScale const* folded, ToClear const& to_clear, Device const& device,
                      cudaStream_t stream);

}  // namespace cutlass_fused
