// A number as the sum of two floats, the second a few roundings of the first at most: 46 bits, by
// the instructions of fp32. A GPU has many more of these than of double ones, and converts between
// the two slowly.
//
// Sum and product without an error: T. J. Dekker, A floating-point technique for extending the
// available precision, 1971; D. E. Knuth, The Art of Computer Programming, volume 2.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/softmax/reduce_row.cuh"

namespace cutlass_fused {

struct Twofold {
  float high, low;
};

__device__ __forceinline__ Twofold operator+(Twofold a, Twofold b) {
  float const sum = a.high + b.high;
  float const part_of_b = sum - a.high;
  float const error = (a.high - (sum - part_of_b)) + (b.high - part_of_b);
  return {sum, error + (a.low + b.low)};
}

__device__ __forceinline__ Twofold operator*(Twofold a, float b) {
  // Not in one instruction with what it is added to: every lane shall add the same bits.
  float const product = __fmul_rn(a.high, b);
  return {product, fmaf(a.low, b, fmaf(a.high, b, -product))};
}

// 1 / a by the GPU's own instruction, which is 2^-23 off. `a` may be neither large nor tiny.
__device__ __forceinline__ float reciprocal(float a) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}

// With one step of Newton's method: 2^-46 off. Of 0 it makes {inf, NaN}, of NaN NaN.
__device__ __forceinline__ Twofold reciprocal(Twofold a) {
  float const start = reciprocal(a.high);
  float const error = fmaf(-a.low, start, fmaf(-a.high, start, 1.0f));
  return {start, start * error};
}

__device__ __forceinline__ Twofold exchange(Twofold value, int offset) {
  return {exchange(value.high, offset), exchange(value.low, offset)};
}

}  // namespace cutlass_fused
