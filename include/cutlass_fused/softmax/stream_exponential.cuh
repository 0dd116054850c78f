// The exponentials of a row that lies in shared memory, and their sum.
//
// Each thread adds up exp(v - shift) behind a shift of its own, and computes exp(v - max) / sum in
// a second pass, when the shifts and sums of all threads are known.
#pragma once

#include <type_traits>

#include "cutlass_fused/softmax/row_softmax.cuh"

namespace cutlass_fused {

// For 16 bits.
template <DataType kType>
struct StreamExponential {
  using Sum = float;
  static constexpr float kLog2E = 1.44269504f;

  __device__ __forceinline__ static float exp2(float v) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
  }
  // The maximum is subtracted in front of the product with log2(e): differences of large numbers
  // are exact, and their products may overflow.
  __device__ __forceinline__ static float at(float difference) { return exp2(difference * kLog2E); }
  __device__ __forceinline__ static Sum ratio(float v, float to) { return at(v - to); }
};

// Factors that many elements share are in double: their error would be that of the sum.
template <>
struct StreamExponential<DataType::kFloat32> {
  using Sum = double;

  __device__ __forceinline__ static float at(float difference) { return expf(difference); }
  __device__ __forceinline__ static Sum ratio(float v, float to) {
    return exp(double(v) - double(to));
  }
};

// A thread's sum. The shift follows only a maximum that exceeds it by far: as long as it stays,
// fp32 exponentials are the very numbers that are written at the end. It is a whole number
// (round_shift).
template <DataType kType>
struct StreamSum {
  using Exponential = StreamExponential<kType>;
  using Sum = typename Exponential::Sum;
  static constexpr float kMostAbove = 16.0f;
  float shift = -INFINITY;
  Sum sum = 0;

  __device__ __forceinline__ void follow(float max) {
    if (max > shift + kMostAbove) {
      float const next = round_shift(max);
      sum = sum_behind(next);
      shift = next;
    }
  }

  // What the sum is where the shift is `to`: without elements it is 0 anyway, and exp(-inf - -inf)
  // would be NaN.
  __device__ __forceinline__ Sum sum_behind(float to) const {
    return shift == -INFINITY ? sum : sum * Exponential::ratio(shift, to);
  }

  // exp(v - shift). In a part of -inf, which adds 0, exp(-inf - -inf) would be NaN.
  __device__ __forceinline__ float exponential(float v) const {
    return Exponential::at(v - subtrahend());
  }
  __device__ __forceinline__ float subtrahend() const { return shift == -INFINITY ? 0.0f : shift; }
};

// exp(v - max) / sum, where `sum` is that of the row behind `max`, the largest shift. Both make NaN
// of a row of nothing but -inf: the ratio to its maximum is NaN. So is the sum of a row that holds
// a NaN or +inf.
//
// Where y is of 16 bits, the sum is subtracted under the exponential.
template <DataType kType>
struct StreamQuotient {
  using Exponential = StreamExponential<kType>;
  float max, log2_sum;

  __device__ __forceinline__ StreamQuotient(StreamSum<kType> const&, float max, float sum)
      : max(max), log2_sum(log2f(sum)) {}

  __device__ __forceinline__ float operator()(float v) const {
    return Exponential::exp2(fmaf(v - max, Exponential::kLog2E, -log2_sum));
  }
};

// 1 / sum, of sums between exp(-1) and 2^100, or of 0 or NaN, which make the row NaN: with one step
// of Newton's method, which leaves 2^-46 in less time than a division.
__device__ __forceinline__ double reciprocal(double sum) {
  double const start = reciprocal(float(sum));
  return fma(start, fma(-sum, start, 1.0), start);
}

// In fp32 from the thread's own exponentials. A small factor and a large exponential may meet: the
// range is taken out behind the product.
template <>
struct StreamQuotient<DataType::kFloat32> {
  using Exponential = StreamExponential<DataType::kFloat32>;
  static constexpr float kRange = 1 << 24;  // above exp(StreamSum::kMostAbove)
  float subtrahend;
  MultiplyBy<DataType::kFloat32> divide;

  // The sum is one of `reciprocal`: it holds the exponential of some shift's own element, of
  // exp(-1) at least, and 2^30 of at most exp(kMostAbove).
  __device__ __forceinline__ StreamQuotient(StreamSum<DataType::kFloat32> const& own, float max,
                                            double sum)
      : subtrahend(own.subtrahend()),
        divide(Exponential::ratio(own.shift, max) * reciprocal(sum) * kRange) {}

  __device__ __forceinline__ float operator()(float v) const {
    constexpr float kInverseRange = 1.0f / kRange;
    return divide(Exponential::at(v - subtrahend)) * kInverseRange;
  }
};

}  // namespace cutlass_fused
