// Mean and M2 = sum((x - mean)^2) of a column that a thread reads, a few rows at a time.
#pragma once

#include <cuda_runtime.h>

namespace cutlass_fused {

// Mean and M2 of x - shift, of few numbers at a time: all that is added to M2 is positive, whatever
// the shift is. Their merge is that of Moments.
struct FewMoments {
  float shift = 0.0f, mean = 0.0f, m2 = 0.0f;

  // Of `count` numbers behind `before` others, for all columns.
  struct Weights {
    float of_each, of_mean, of_spread;
    __device__ __forceinline__ Weights(float before, int count) {
      float const added = float(count), part = added / (before + added);
      of_each = 1.0f / added;
      of_mean = part;
      of_spread = before * part;
    }
  };

  template <int kCount>
  __device__ __forceinline__ void add(float (&x)[kCount], int count, Weights const& weights) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = i < count ? x[i] - shift : 0.0f;
      sum += x[i];
    }
    float const few = sum * weights.of_each;
    // Behind an outlier m2 is large and what is added to it rounds: once for all of them.
    float spread = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float const difference = i < count ? x[i] - few : 0.0f;
      spread = fmaf(difference, difference, spread);
    }
    float const delta = few - mean;
    mean = fmaf(delta, weights.of_mean, mean);
    // The weight first, which begins as 0: a square may be infinite.
    m2 += fmaf(delta, delta * weights.of_spread, spread);
  }
};

}  // namespace cutlass_fused
