// Mean and M2 of every column over one range of rows. No atomics: two runs give the same bits.
//
// A thread takes x - shift, the shift being its first element, so that a large mean costs no
// digits. A range is short, so that its fp32 sums round little.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/norm/statistics/column_block.cuh"
#include "cutlass_fused/norm/statistics/few_moments.cuh"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/statistics/moments.cuh"

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
  using In = Storage<kIn>;
  constexpr int kWidth = Block::kWidth;
  // Column lane * kWidth + i lies at [i][lane]: no bank conflicts.
  __shared__ float2 shared[Block::kRows][kWidth][Block::kLanes];

  int const base = blockIdx.x * Block::kColumns + int(threadIdx.x) / 32 * 32 * kWidth;
  int64_t const begin = int64_t(blockIdx.y) * params.rows_per_range;
  int64_t const end = min(begin + params.rows_per_range, params.rows);
  Piece<kWidth, kAccess> const piece(base, threadIdx.x % 32);

  wait_for_previous_kernel();
  using Few = std::conditional_t<kIn == DataType::kFloat32, FewMoments, FewSums>;
  Few sums[kWidth];
  In const* const x = static_cast<In const*>(params.x) + begin * params.ldx;
  for_each_few_rows<kIn>(piece, x, params.ldx, int(end - begin), int(params.columns),
                         [&](auto const& rows, int before) {
                           constexpr int kCount =
                               std::extent_v<std::remove_reference_t<decltype(rows)>>;
#pragma unroll
                           for (int i = 0; i < kWidth; ++i) {
                             float few[kCount];
#pragma unroll
                             for (int u = 0; u < kCount; ++u) few[u] = to_float(rows[u][i]);
                             if (before == 0) sums[i].start(few[0]);
                             sums[i].add(few, float(before));
                           }
                         });

  auto const count_rows = [&](int y) {
    int64_t const left = end - begin - y;
    return left > 0 ? float((left + Block::kRows - 1) / Block::kRows) : 0.0f;
  };
  float const count = count_rows(threadIdx.y);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    Moments const moments = sums[i].moments(count);
    shared[threadIdx.y][i][threadIdx.x] = {moments.mean, moments.m2};
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
