// From the partial statistics of all ranges to the batch's, and the running ones moved: in a fixed
// order, so that two runs give the same bits.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/statistics/moments.cuh"
#include "cutlass_fused/norm/statistics/move_running.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/common/prefetch.cuh"

namespace cutlass_fused {

struct MergeStatisticsParams {
  Matrix x;
  Ranges ranges;
  PartialsFrom from;
  float2 const* partials;
  Vector gamma, beta;
  float eps;
  RunningStatistics running;
  BatchStatistics statistics;
  int64_t* count;  // counted up here, if the mean is not cumulative; may be null
  StoredShifts stored;
};

inline MergeStatisticsParams make_merge_params(Matrix const& x, Ranges const& ranges,
                                               PartialsFrom from, void const* partials,
                                               Vector const& gamma, Vector const& beta, float eps,
                                               RunningStatistics const& running,
                                               BatchStatistics const& statistics,
                                               StoredShifts const& stored) {
  bool const counts = from == PartialsFrom::kRepairedProduct && !running.cumulative;
  int64_t* const count = counts ? running.num_batches_tracked : nullptr;
  return {x,          ranges, from,  static_cast<float2 const*>(partials),
          gamma,      beta,   eps,   running,
          statistics, count,  stored};
}

struct MergeBlock {
  static constexpr int kLanes = kColumnsOfMerge;
  static constexpr int kSlices = 8;  // each takes every eighth range
  static constexpr int kThreads = kLanes * kSlices;
};

// The mean and M2 of column n over one range, by one thread: in double, since squares of so many
// differences to one number lose digits in fp32 where that number lies far from the mean.
__device__ __forceinline__ float2 find_partial(Matrix const& x, int64_t n, int64_t begin,
                                               int64_t end) {
  auto const at = [&](int64_t m) { return Vector{x.data, 1, x.type, 0.0f}(m * x.ld + n); };
  double const shift = at(begin), count = double(end - begin);
  double sum = 0.0, squares = 0.0;
#pragma unroll 8
  for (int64_t m = begin; m < end; ++m) {
    double const difference = at(m) - shift;
    sum += difference;
    squares = fma(difference, difference, squares);
  }
  double const mean = sum / count, m2 = fma(-sum, mean, squares);
  // Rounding may leave it a little below zero; a NaN must stay one.
  return {float(shift + mean), m2 < 0.0 ? 0.0f : float(m2)};
}

// The column of a block, and the slice of the ranges, that a thread takes.
struct MergePlace {
  int lane, slice;
};

// Into L1, the first partial of each thread.
__device__ __forceinline__ void prefetch_partials(MergeStatisticsParams const& params, int64_t n,
                                                  MergePlace place) {
  if (n >= params.x.columns || place.slice >= params.ranges.count) return;
  float2 const* const partial = params.partials + place.slice * params.x.columns + n;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(partial));
}

// Stores the rows of column n in every kSlices-th range, of 16 bits, less the shift of the column's
// first range, so many rows at once.
template <int kAtOnce, class T>
__device__ void move_to_first_shift(MergeStatisticsParams const& params, int64_t n, int slice) {
  Matrix const& z = params.x;
  int64_t const range_rows = params.ranges.rows_per_range;
  for (int64_t range = slice; range < params.ranges.count; range += MergeBlock::kSlices) {
    float const* const shift = params.stored.shifts + n;
    float const difference = shift[range * z.columns] - shift[0];
    if (difference == 0.0f) continue;
    int64_t const begin = range * range_rows;
    T* at = static_cast<T*>(const_cast<void*>(z.data)) + begin * z.ld + n;
    for (int left = int(min(range_rows, z.rows - begin)); left > 0; left -= kAtOnce) {
      // Past L1, where neither a product that still runs nor the reader of neighbours is seen.
      T stored[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < left) stored[i] = __ldcg(at + i * z.ld);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < left) __stcg(at + i * z.ld, round_to<T>(to_float(stored[i]) + difference));
      }
      at += kAtOnce * z.ld;
    }
  }
}

// Picks the function above for the type of z. It is out of line, since it is hardly ever called.
template <int kAtOnce>
__device__ __noinline__ void move_to_first_shift(MergeStatisticsParams const& params, int64_t n,
                                                 int slice) {
  if (params.x.type == DataType::kBFloat16) {
    move_to_first_shift<kAtOnce, __nv_bfloat16>(params, n, slice);
  } else {
    move_to_first_shift<kAtOnce, __half>(params, n, slice);
  }
}

using MergeSums = PartSums[MergeBlock::kSlices][MergeBlock::kLanes];

// Merges column n, by a block whose threads stand for kLanes columns and kSlices of the ranges. Its
// loads do not wait for each other. kShifted: z is of 16 bits, which nothing repairs, and less the
// shifts of StoredShifts; whether those that this thread has seen differ is returned, for
// move_to_first_shift.
template <bool kRepaired, bool kShifted>
__device__ __forceinline__ bool merge_columns(MergeStatisticsParams const& params, int64_t n,
                                              MergePlace place, double reciprocal,
                                              MergeSums& shared) {
  constexpr int kAtOnce = 4;
  int64_t const range_rows = params.ranges.rows_per_range;
  bool const active = n < params.x.columns;
  float const* const shifts = params.stored.shifts;
  // A partial that is NaN may stem from a product that had not been repaired.
  auto const repaired = [&](float2 const& part, int64_t range) {
    if (!kRepaired || kShifted || !isnan(part.x + part.y)) return part;
    int64_t const begin = range * range_rows;
    return find_partial(params.x, n, begin, min(begin + range_rows, params.x.rows));
  };
  // Behind a product gamma, beta and the running statistics are asked for first, so that the end
  // waits for nothing. Elsewhere later: normalize_strips has no registers for them.
  Vector::Raw gamma{}, beta{};
  RunningRaw running{};
  ColumnShift::Raw column{};
  auto const fetch_vectors = [&] {
    column = params.stored.column.fetch(n);
    gamma = params.gamma.fetch(n);
    beta = params.beta.fetch(n);
    running = fetch_running(params.running, n);
  };
  if (kRepaired && active && place.slice == 0) fetch_vectors();
  PartSums sums;
  double shift = 0.0;
  float first_shift = 0.0f;
  bool differs = false;
  if (active) {
    float2 const zeroth = params.partials[n];
    if (kShifted) first_shift = shifts[n];
    for (int64_t begin = place.slice; begin < params.ranges.count;
         begin += kAtOnce * MergeBlock::kSlices) {
      float2 parts[kAtOnce];
      float part_shifts[kAtOnce] = {};
      auto const range = [&](int i) { return begin + i * MergeBlock::kSlices; };
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        int64_t const last = params.ranges.count - 1;
        int64_t const at = min(range(i), last) * params.x.columns + n;
        parts[i] = params.partials[at];
        if (kShifted) part_shifts[i] = shifts[at];
      }
      if (begin == place.slice) shift = double(repaired(zeroth, 0).x) + first_shift;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (range(i) >= params.ranges.count) break;
        int64_t const count = min(range_rows, params.x.rows - range(i) * range_rows);
        float2 const part = repaired(parts[i], range(i));
        sums.add(double(count), double(part.x) + part_shifts[i], double(part.y), shift);
        differs |= part_shifts[i] != first_shift;
      }
    }
  }
  shared[place.slice][place.lane] = sums;
  __syncthreads();
  if (!active || place.slice > 0) return differs;
  for (int slice = 1; slice < MergeBlock::kSlices; ++slice) {
    sums.add(shared[slice][place.lane]);
  }

  if (!kRepaired) fetch_vectors();
  double const column_shift = params.stored.column.convert(column);
  double const spoilt = spoilt_by(column_shift);
  double const stored_mean = sums.mean(shift, reciprocal) + spoilt;
  double const mean = stored_mean + column_shift, m2 = sums.total_m2(reciprocal) + spoilt;
  float const rstd = float(rsqrt(m2 * reciprocal + double(params.eps)));
  params.statistics.mean[n] = float(mean);
  if (params.stored.centre != nullptr) params.stored.centre[n] = float(stored_mean - first_shift);
  params.statistics.rstd[n] = rstd;
  params.statistics.a[n] = params.gamma.convert(gamma) * rstd;
  if (params.statistics.d != nullptr) params.statistics.d[n] = params.beta.convert(beta);
  move_running(params.running, n, running, mean, m2, double(params.x.rows));
  if (params.count != nullptr && n == 0) ++*params.count;
  return differs;
}

// Hints alone: an earlier kernel may still write what they name, so that they may stand in front of
// wait_for_previous_kernel().
__device__ __forceinline__ void prefetch_vectors(MergeStatisticsParams const& params, int64_t n,
                                                 MergePlace place) {
  if (n >= params.x.columns || place.slice > 0) return;
  prefetch(params.stored.column.bias, n);
  prefetch(params.stored.column.scale, n);
  prefetch(params.gamma, n);
  prefetch(params.beta, n);
  prefetch(view_running(params.running.mean), n);
  prefetch(view_running(params.running.var), n);
}

// In the time between two kernels that take much longer: what it reads has been asked for before.
static __global__ void __launch_bounds__(MergeBlock::kThreads, 2)
    merge_statistics(__grid_constant__ MergeStatisticsParams const params) {
  __shared__ MergeSums shared;
  MergePlace const place{int(threadIdx.x), int(threadIdx.y)};
  int64_t const n = int64_t(blockIdx.x) * MergeBlock::kLanes + place.lane;
  prefetch_vectors(params, n, place);
  double const reciprocal = 1.0 / double(params.x.rows);

  wait_for_previous_kernel();
  __threadfence();  // the trigger promises the next kernel nothing of what this one sees
  allow_next_kernel();
  if (params.from == PartialsFrom::kColumns) {
    merge_columns<false, false>(params, n, place, reciprocal, shared);
  } else if (params.stored.shifts == nullptr) {
    merge_columns<true, false>(params, n, place, reciprocal, shared);
  } else {
    bool const differs = merge_columns<true, true>(params, n, place, reciprocal, shared);
    if (differs) move_to_first_shift<16>(params, n, place.slice);
    bool const moved = __syncthreads_or(differs);
    if (place.slice + place.lane == 0) params.stored.moved[blockIdx.x] = moved;
  }
}

static __global__ void count_batch(int64_t* num_batches_tracked) {
  wait_for_previous_kernel();
  ++*num_batches_tracked;
}

}  // namespace cutlass_fused
