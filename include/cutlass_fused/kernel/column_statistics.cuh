// Mean and M2 of every column over one range of rows. No atomics: two runs give the same bits.
//
// A thread takes x - shift, the shift being its first element, so that a large mean costs no digits,
// and merges the mean and M2 of a few rows at a time. Sums of the differences and of their squares
// would cancel where the first element is an outlier: with heavy tails rstd was off by 2e-6.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/kernel/column_block.cuh"
#include "cutlass_fused/kernel/few_moments.cuh"
#include "cutlass_fused/kernel/launch.cuh"
#include "cutlass_fused/kernel/moments.cuh"

namespace cutlass_fused {

struct ColumnStatisticsParams {
  void const* x;
  int64_t ldx, rows, columns, rows_per_range;
  float2* partials;              // (ranges, columns) of {mean, M2}
  int64_t* num_batches_tracked;  // counted up here, for the next kernel to read; may be null
};

template <DataType kIn, Access kAccess>
__global__ void __launch_bounds__(ColumnBlock<kIn>::kThreads, kAccess == Access::kAligned ? 4 : 2)
    column_statistics(__grid_constant__ ColumnStatisticsParams const params) {
  using Block = ColumnBlock<kIn>;
  using In = typename StorageOf<kIn>::type;
  constexpr int kWidth = Block::kWidth;
  // Column lane * kWidth + i lies at [i][lane]: no bank conflicts.
  __shared__ float2 shared[Block::kRows][kWidth][Block::kLanes];

  int const base = blockIdx.x * Block::kColumns + int(threadIdx.x) / 32 * 32 * kWidth;
  int64_t const begin = int64_t(blockIdx.y) * params.rows_per_range;
  int64_t const end = min(begin + params.rows_per_range, params.rows);
  Piece<kWidth, kAccess> const piece(base, threadIdx.x % 32);

  wait_for_previous_kernel();
  FewMoments sums[kWidth] = {};
  float before = 0.0f;  // rows that have been merged
  for_each_few_rows<kIn>(piece, static_cast<In const*>(params.x), params.ldx, begin, end,
                         int(params.columns), [&](auto const& rows, int count) {
                           FewMoments::Weights const weights(before, count);
#pragma unroll
                           for (int i = 0; i < kWidth; ++i) {
                             if (before == 0.0f) sums[i].shift = to_float(rows[0][i]);
                             float few[Block::kUnroll];
#pragma unroll
                             for (int u = 0; u < Block::kUnroll; ++u) few[u] = to_float(rows[u][i]);
                             sums[i].add(few, count, weights);
                           }
                           before += float(count);
                         });

  auto const count_rows = [&](int y) {
    int64_t const left = end - begin - y;
    return left > 0 ? float((left + Block::kRows - 1) / Block::kRows) : 0.0f;
  };
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    shared[threadIdx.y][i][threadIdx.x] = {sums[i].shift + sums[i].mean, sums[i].m2};
  }
  __syncthreads();
  for (int t = threadIdx.y; t < kWidth; t += Block::kRows) {
    if (!piece.holds(t, params.columns)) continue;
    auto const moments = [&](int y) {
      float2 const part = shared[y][t][threadIdx.x];
      return Moments{count_rows(y), part.x, part.y};
    };
    Moments total = moments(0);
    for (int y = 1; y < Block::kRows; ++y) total.merge(moments(y));
    params.partials[blockIdx.y * params.columns + piece.column(t)] = {total.mean, total.m2};
  }
  if (params.num_batches_tracked != nullptr && blockIdx.x + blockIdx.y == 0 &&
      threadIdx.x + threadIdx.y == 0) {
    ++*params.num_batches_tracked;
  }
}

}  // namespace cutlass_fused
