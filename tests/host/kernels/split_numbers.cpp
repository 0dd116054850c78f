// Splits numbers as a thread does, on the host. Of each line "<has lo> <bits of the row's largest
// number> <bits of 8 numbers>" it prints the bits of hi and of lo, the units that were lost, and
// the bits of the row's scale if it lost nothing else.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>

// What the GPU has of these.
using std::max;
inline float __uint_as_float(unsigned bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
inline unsigned __float_as_uint(float number) {
  unsigned bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline int __clzll(int64_t bits) { return bits == 0 ? 64 : __builtin_clzll(uint64_t(bits)); }
// The sum to the nearest, and what it lacks, which is exact.
inline float __fadd_ru(float a, float b) {
  float const sum = a + b, added = sum - a;
  float const rest = (a - (sum - added)) + (b - added);
  return rest > 0 ? std::nextafter(sum, INFINITY) : sum;
}

#include "cutlass_fused/gemm/fp16x3/split_numbers.cuh"

using namespace cutlass_fused;

template <bool kLow>
void split_piece(unsigned largest) {
  float from[kSplitWidth];
  for (float& number : from) {
    unsigned bits;
    std::cin >> bits;
    number = __uint_as_float(bits);
  }
  alignas(16) __half to[kSplitWidth + SplitLayout::kBlock] = {};
  RowPower const power(largest);
  Loss<kLow> lost;
  store_piece(from, RowSplit<kLow>(power), to, lost);
  for (int part = 0; part < (kLow ? 2 : 1); ++part) {
    for (int i = 0; i < kSplitWidth; ++i) {
      uint16_t bits;
      std::memcpy(&bits, &to[part * SplitLayout::kBlock + i], sizeof bits);
      std::printf("%u ", unsigned(bits));
    }
  }
  RowScale const scale = Loss<kLow>::make_scale(power, lost.units());
  std::printf("%u %u\n", lost.units(), __float_as_uint(scale.packed));
}

int main() {
  unsigned has_low, largest;
  while (std::cin >> has_low >> largest)
    (has_low ? split_piece<true> : split_piece<false>)(largest);
}
