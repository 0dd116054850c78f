// The numbers of a row softmax: exponentials, what they add up to, and the division by it.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/common/twofold.cuh"
#include "cutlass_fused/norm/normalization.hpp"

namespace cutlass_fused {

// v = x * scale, rounded. In one instruction with what is subtracted from it, the product would not
// be, but the maximum is: of huge numbers that are equal something would be left.
template <class Prologue>
__device__ __forceinline__ float scale_by(float x, float scale) {
  return std::is_same_v<Prologue, Identity> ? x : __fmul_rn(x, scale);
}

// exp of what is to be rounded to kOut. For 16 bits the instruction of the GPU is enough (2 ulp of
// fp32, and |v| * 2^-24 from the change of base); expf takes four times as many instructions, and
// the kernel is then no longer bound by memory.
template <DataType kOut>
__device__ __forceinline__ float exponential(float v) {
  return kOut == DataType::kFloat32 ? expf(v) : __expf(v);
}

// What is subtracted in place of a maximum that only some of a row's elements have been compared
// with: a whole number above it. Where it is not negative, v - shift is exact for every larger v,
// as are differences from the row's maximum near that. Behind a maximum of many digits it is off by
// up to 2^-23 where v is the larger one by 2 to 4, and so by as much, relatively, exp(v - shift).
// So it is still where the largest numbers of a row are below 0, and the shift further.
__device__ __forceinline__ float round_shift(float max) { return ceilf(max); }

// The sum of a row. What its elements add up to shall be 1 within one eps of kOut: for fp32 neither
// the sum of many nor its reciprocal may round as fp32 does.
template <DataType kOut>
using RowSum = std::conditional_t<kOut == DataType::kFloat32, Twofold, float>;

// The maximum as the sum needs it: a NaN shows in a sum of floats anyway.
template <DataType kOut>
using TakeRowMax = std::conditional_t<kOut == DataType::kFloat32, TakeMaxOrNaN, TakeMax>;

// What a thread adds up, of exp(v - max): two at a time. For 16 bits kSums, of which none waits for
// the others.
template <DataType kOut, int kSums>
class ThreadSum {
  float sums_[kSums] = {};

 public:
  __device__ __forceinline__ void add(int pair, float sum) { sums_[pair % kSums] += sum; }

  // Over the threads of a warp.
  template <class Add>
  __device__ __forceinline__ float add_up(float, Add add) const {
    float sum = sums_[0];
#pragma unroll
    for (int i = 1; i < kSums; ++i) sum += sums_[i];
    return reduce_warp(sum, add);
  }
};

// How many exponentials the lanes of a warp may add up, at most.
constexpr int kMostAddedUp = 1024;

// For fp32 in fixed point, so that nothing is lost: in units of 2^-14 and, of what that leaves, of
// 2^-36. Adding 1.5 * 2^23 units to a number rounds it to whole units, which are then the low bits
// of the float; 1.5 keeps a negative one in the same binade. A warp's first sum is a whole number
// of at most 2^24, which a float holds; its second, half a coarse unit from each pair, is below
// 2^31.
//
// The sum of a pair is off by 2^-24 of it at most, as every result is: what the results add up to
// stays within 2^-23, one eps, with half as many additions.
template <int kSums>
class ThreadSum<DataType::kFloat32, kSums> {
  static constexpr float kCoarse = 0x1.8p9f, kFine = 0x1.8p-13f;
  unsigned coarse_ = 0, fine_ = 0;  // modulo 2^32, as differences of bits may be of any size

 public:
  __device__ __forceinline__ void add(int, float sum) {
    float const coarse = sum + kCoarse;
    float const fine = sum - (coarse - kCoarse) + kFine;
    coarse_ += __float_as_uint(coarse) - __float_as_uint(kCoarse);
    fine_ += __float_as_uint(fine) - __float_as_uint(kFine);
  }

  // In a part with a NaN or +inf the numbers above are no numbers, but `max` tells.
  template <class Add>
  __device__ __forceinline__ Twofold add_up(float max, Add add) const {
    float const coarse = float(int(reduce_warp(coarse_, add))) * 0x1p-14f;
    float const fine = float(int(reduce_warp(fine_, add))) * 0x1p-36f;
    float const sum = coarse + fine;
    return {max < INFINITY ? sum : NAN, fine - (sum - coarse)};
  }
};

// v = exp(v - subtrahend), added to the thread's sum.
template <DataType kOut, int kWidth, int kSums>
__device__ __forceinline__ void exponentiate(float (&v)[kWidth], float subtrahend,
                                             ThreadSum<kOut, kSums>& sum) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    v[i] = exponential<kOut>(v[i] - subtrahend);
    v[i + 1] = exponential<kOut>(v[i + 1] - subtrahend);
    sum.add(i / 2, v[i] + v[i + 1]);
  }
}

// v * factor, rounded once.
template <DataType kOut>
struct MultiplyBy {
  float high, low;

  __device__ __forceinline__ explicit MultiplyBy(float factor) : high(factor), low(0.0f) {}
  __device__ __forceinline__ explicit MultiplyBy(Twofold factor)
      : high(factor.high), low(factor.low) {}
  __device__ __forceinline__ explicit MultiplyBy(double factor)
      : high(float(factor)), low(float(factor - high)) {}

  __device__ __forceinline__ float operator()(float v) const {
    return kOut == DataType::kFloat32 ? fmaf(v, high, v * low) : v * high;
  }
};

}  // namespace cutlass_fused
