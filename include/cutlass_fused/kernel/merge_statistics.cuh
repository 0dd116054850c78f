// From the partial statistics of all ranges to the batch's, and the running ones moved: in a fixed
// order, so that two runs give the same bits.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/batch_norm.hpp"
#include "cutlass_fused/kernel/launch.cuh"
#include "cutlass_fused/kernel/moments.cuh"
#include "cutlass_fused/kernel/move_running.cuh"

namespace cutlass_fused {

struct MergeStatisticsParams {
  Matrix x;
  Ranges ranges;
  PartialsFrom from;
  float2 const* partials;
  Vector gamma;
  float eps;
  RunningStatistics running;
  BatchStatistics statistics;
  int64_t* count;  // counted up here, if the mean is not cumulative; may be null
};

struct MergeBlock {
  static constexpr int kLanes = 32;  // columns
  static constexpr int kSlices = 8;  // each takes every eighth range
  static constexpr int kThreads = kLanes * kSlices;
};

// Of column n over one range, by a thread.
__device__ __forceinline__ float2 find_partial(Matrix const& x, int64_t n, int64_t begin,
                                               int64_t end) {
  auto const at = [&](int64_t m) { return Vector{x.data, 1, x.type, 0.0f}(m * x.ld + n); };
  ShiftedSums sums;
  sums.shift = at(begin);
#pragma unroll 8
  for (int64_t m = begin; m < end; ++m) sums.add(at(m));
  Moments const moments = sums.moments(float(end - begin));
  return {moments.mean, moments.m2};
}

static __global__ void __launch_bounds__(MergeBlock::kThreads)
    merge_statistics(__grid_constant__ MergeStatisticsParams const params) {
  __shared__ PartSums shared[MergeBlock::kSlices][MergeBlock::kLanes];
  int64_t const n = int64_t(blockIdx.x) * MergeBlock::kLanes + threadIdx.x;
  bool const active = n < params.x.columns;

  wait_for_previous_kernel();
  // A partial that is NaN may stem from a product that had not been repaired.
  auto const partial = [&](int64_t range) {
    float2 const part = params.partials[range * params.x.columns + n];
    if (params.from != PartialsFrom::kRepairedProduct || !isnan(part.x + part.y)) return part;
    int64_t const begin = range * params.ranges.rows_per_range;
    return find_partial(params.x, n, begin,
                        min(begin + params.ranges.rows_per_range, params.x.rows));
  };
  double const shift = active ? double(partial(0).x) : 0.0;
  PartSums sums;
  if (active) {
    int64_t const rows = params.ranges.rows_per_range;
#pragma unroll 4
    for (int64_t range = threadIdx.y; range < params.ranges.count; range += MergeBlock::kSlices) {
      sums.add(double(min(rows, params.x.rows - range * rows)), partial(range), shift);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (!active || threadIdx.y > 0) return;
  for (int slice = 1; slice < MergeBlock::kSlices; ++slice) {
    sums.add(shared[slice][threadIdx.x]);
  }

  double const rows = double(params.x.rows);
  double const mean = sums.mean(shift, rows), m2 = sums.total_m2(rows);
  float const rstd = float(1.0 / sqrt(m2 / rows + double(params.eps)));
  params.statistics.mean[n] = float(mean);
  params.statistics.rstd[n] = rstd;
  params.statistics.a[n] = params.gamma(n) * rstd;
  move_running(params.running, n, mean, m2, rows);
  if (params.count != nullptr && n == 0) ++*params.count;
}

static __global__ void count_batch(int64_t* num_batches_tracked) {
  wait_for_previous_kernel();
  ++*num_batches_tracked;
}

}  // namespace cutlass_fused
