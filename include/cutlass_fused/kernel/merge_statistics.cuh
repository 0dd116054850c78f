// From the partial statistics of all ranges to the batch's, and the running ones moved.
//
// In double, where it costs nothing, and without a division per range: with d_r = mean_r - mean_0,
//   mean = mean_0 + D / M,   M2 = sum(M2_r) + sum(count_r * d_r^2) - D^2 / M,   D = sum(count_r *
//   d_r)
// in a fixed order: two runs give the same bits.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/batch_norm.hpp"
#include "cutlass_fused/kernel/launch.cuh"

namespace cutlass_fused {

struct MergeStatisticsParams {
  int64_t rows, columns;
  Ranges ranges;
  float2 const* partials;
  Vector gamma;
  float eps;
  RunningStatistics running;
  BatchStatistics statistics;
};

struct MergeBlock {
  static constexpr int kLanes = 32;  // columns
  static constexpr int kSlices = 8;  // each takes every eighth range
  static constexpr int kThreads = kLanes * kSlices;
};

__device__ __forceinline__ void move_running(RunningVector const& running, int64_t n,
                                             double momentum, double value) {
  if (running.data == nullptr) return;
  int64_t const offset = n * running.stride;
  float const old = Vector{running.data, 1, running.type, 0.0f}(offset);
  float const moved = float((1.0 - momentum) * old + momentum * value);
  switch (running.type) {
    case DataType::kFloat16:
      static_cast<__half*>(running.data)[offset] = __float2half_rn(moved);
      break;
    case DataType::kBFloat16:
      static_cast<__nv_bfloat16*>(running.data)[offset] = __float2bfloat16_rn(moved);
      break;
    default:
      static_cast<float*>(running.data)[offset] = moved;
  }
}

static __global__ void __launch_bounds__(MergeBlock::kThreads)
    merge_statistics(__grid_constant__ MergeStatisticsParams const params) {
  struct Sums {
    double d, dd, m2;  // of count * d, count * d^2, M2
  };
  __shared__ Sums shared[MergeBlock::kSlices][MergeBlock::kLanes];
  int64_t const n = int64_t(blockIdx.x) * MergeBlock::kLanes + threadIdx.x;
  bool const active = n < params.columns;

  wait_for_previous_kernel();
  double const shift = active ? double(params.partials[n].x) : 0.0;
  Sums sums{0.0, 0.0, 0.0};
  if (active) {
    int64_t const rows = params.ranges.rows_per_range;
#pragma unroll 4
    for (int64_t range = threadIdx.y; range < params.ranges.count; range += MergeBlock::kSlices) {
      float2 const part = params.partials[range * params.columns + n];
      double const count = double(min(rows, params.rows - range * rows));
      double const d = double(part.x) - shift;
      sums.d += count * d;
      sums.dd += count * d * d;
      sums.m2 += double(part.y);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (!active || threadIdx.y > 0) return;
  for (int slice = 1; slice < MergeBlock::kSlices; ++slice) {
    Sums const& other = shared[slice][threadIdx.x];
    sums.d += other.d;
    sums.dd += other.dd;
    sums.m2 += other.m2;
  }

  double const rows = double(params.rows);
  double const mean = shift + sums.d / rows;
  // Rounding may leave a variance of zero a little below it; a NaN must stay one.
  double const spread = sums.dd - sums.d * sums.d / rows;
  double const m2 = sums.m2 + (spread < 0.0 ? 0.0 : spread);
  float const rstd = float(1.0 / sqrt(m2 / rows + double(params.eps)));
  params.statistics.mean[n] = float(mean);
  params.statistics.rstd[n] = rstd;
  params.statistics.a[n] = params.gamma(n) * rstd;
  double const momentum = params.running.cumulative
                              ? 1.0 / double(*params.running.num_batches_tracked)
                              : params.running.momentum;
  move_running(params.running.mean, n, momentum, mean);
  move_running(params.running.var, n, momentum, m2 / (rows - 1.0));
}

static __global__ void count_batch(int64_t* num_batches_tracked) {
  wait_for_previous_kernel();
  ++*num_batches_tracked;
}

}  // namespace cutlass_fused
