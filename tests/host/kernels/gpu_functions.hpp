// What the code of kernels that split numbers has on a GPU, for a host.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

using std::max;
using std::min;
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

// The bits of hi, and of lo if there are any, of a piece.
template <bool kLow>
void print_parts(__half const* to) {
  using namespace cutlass_fused;
  for (int part = 0; part < (kLow ? 2 : 1); ++part) {
    for (int i = 0; i < kSplitWidth; ++i) {
      uint16_t bits;
      std::memcpy(&bits, &to[part * SplitLayout::kBlock + i], sizeof bits);
      std::printf("%u ", unsigned(bits));
    }
  }
}
