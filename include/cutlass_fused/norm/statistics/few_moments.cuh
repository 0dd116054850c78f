// Mean and M2 = sum((x - mean)^2) of a column that a thread reads, a few rows at a time.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/norm/statistics/moments.cuh"

namespace cutlass_fused {

// The moments of fp32 numbers. All that is added to M2 is positive, wherever the first number lies:
// with heavy tails the first number may be an outlier, beside which the sums of ShiftedSums cancel
// and rstd was off by 2e-5. The mean is kept as its distance to the first number, for means of 1e4
// times the deviation.
class FewMoments {
  float shift_ = 0.0f, mean_ = 0.0f, m2_ = 0.0f;

 public:
  __device__ __forceinline__ void start(float first) { shift_ = first; }

  // Behind `before` others. The merge is that of Moments.
  template <int kCount>
  __device__ __forceinline__ void add(float (&x)[kCount], float before) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += x[i] -= shift_;
    float const few = sum * (1.0f / kCount);
    // Behind an outlier M2 is large and what is added to it rounds: once for all of them.
    float spread = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) spread = fmaf(x[i] - few, x[i] - few, spread);
    float const delta = few - mean_, part = kCount / (before + kCount);
    mean_ = fmaf(delta, part, mean_);
    // The weight first, which begins as 0: a square may be infinite.
    m2_ += fmaf(delta, delta * (before * part), spread);
  }

  __device__ __forceinline__ Moments moments(float count) const {
    return {count, shift_ + mean_, m2_};
  }
};

// The sums of 16-bit numbers, beside whose own rounding 2e-5 is nothing. They take half the
// registers: eight columns a thread leave no more.
class FewSums {
  ShiftedSums sums_;

 public:
  __device__ __forceinline__ void start(float first) { sums_.shift = first; }

  template <int kCount>
  __device__ __forceinline__ void add(float (&x)[kCount], float) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums_.add(x[i]);
  }

  __device__ __forceinline__ Moments moments(float count) const { return sums_.moments(count); }
};

}  // namespace cutlass_fused
