// Count, mean and M2 = sum((x - mean)^2) of numbers, merged.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cutlass_fused {

// In fp32, of few numbers: by the formula of Chan, Golub and LeVeque ("Updating formulae and a
// pairwise algorithm for computing sample variances", 1979).
struct Moments {
  float count, mean, m2;

  __device__ __forceinline__ void merge(Moments const& other) {
    if (other.count == 0.0f) return;
    float const total = count + other.count;
    float const delta = other.mean - mean, part = other.count / total;
    mean = fmaf(delta, part, mean);
    m2 += fmaf(delta * delta, count * part, other.m2);
    count = total;
  }
};

// Sums of x - shift and its square, the shift being one of the numbers or a mean of some: where the
// mean is 1e4 times the standard deviation the differences are exact, and nothing cancels as it
// does in E[x^2] - E[x]^2.
struct ShiftedSums {
  float shift = 0.0f, sum = 0.0f, squares = 0.0f;

  __device__ __forceinline__ void add(float x) {
    float const difference = x - shift;
    sum += difference;
    squares = fmaf(difference, difference, squares);
  }

  // The mean less `origin`, of which nothing is rounded off where that is the shift.
  __device__ __forceinline__ Moments moments(float count, float origin = 0.0f) const {
    if (count == 0.0f) return {0.0f, 0.0f, 0.0f};
    float const mean = sum / count;
    float const m2 = fmaf(-sum, mean, squares);
    // Rounding may leave it a little below zero; a NaN must stay one.
    return {count, (shift - origin) + mean, m2 < 0.0f ? 0.0f : m2};
  }
};

// The moments of parts merged in double, where it costs nothing, and without a division per part:
// with d_r = mean_r - shift, the shift being the mean of one of them, of M numbers in all,
//   mean = shift + D / M,   M2 = sum(M2_r) + sum(count_r * d_r^2) - D^2 / M,
//   D = sum(count_r * d_r)
struct PartSums {
  double d = 0.0, dd = 0.0, m2 = 0.0;

  __device__ __forceinline__ void add(double count, double part_mean, double part_m2,
                                      double shift) {
    double const difference = part_mean - shift;
    d += count * difference;
    dd += count * difference * difference;
    m2 += part_m2;
  }
  __device__ __forceinline__ void add(double count, float2 const& mean_m2, double shift) {
    add(count, double(mean_m2.x), double(mean_m2.y), shift);
  }
  __device__ __forceinline__ void add(PartSums const& other) {
    d += other.d;
    dd += other.dd;
    m2 += other.m2;
  }

  // Both of 1 / M, which many columns share.
  __device__ __forceinline__ double mean(double shift, double reciprocal) const {
    return shift + d * reciprocal;
  }
  __device__ __forceinline__ double total_m2(double reciprocal) const {
    // Rounding may leave a variance of zero a little below it; a NaN must stay one.
    double const spread = dd - d * d * reciprocal;
    return m2 + (spread < 0.0 ? 0.0 : spread);
  }
};

}  // namespace cutlass_fused
