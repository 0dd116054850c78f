// Launches of the batch-norm kernels that depend on the type of x.
#pragma once

#include <algorithm>

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/norm/statistics/column_statistics.cuh"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/normalize.cuh"

namespace cutlass_fused {

template <DataType kIn>
bool has_aligned_pieces(Matrix const& x) {
  return x.columns % ColumnBlock<kIn>::kWidth == 0 && has_aligned_rows(x.data, x.ld, kIn);
}

template <DataType kIn>
Status run_column_statistics(Matrix const& x, Ranges const& ranges, void* workspace,
                             int64_t* num_batches_tracked, Device const& device,
                             cudaStream_t stream) {
  using Block = ColumnBlock<kIn>;
  ColumnStatisticsParams const params{x.data,
                                      x.ld,
                                      x.rows,
                                      x.columns,
                                      ranges.rows_per_range,
                                      static_cast<float2*>(workspace),
                                      num_batches_tracked};
  dim3 const grid(unsigned(ceil_div(x.columns, Block::kColumns)), unsigned(ranges.count));
  dim3 const block(Block::kLanes, Block::kRows);
  KernelLaunch const launch{device, stream, grid, block};
  return has_aligned_pieces<kIn>(x) ? launch(column_statistics<kIn, Access::kAligned>, params)
                                    : launch(column_statistics<kIn, Access::kElements>, params);
}

template <DataType kIn, class Map>
Status run_normalize(Matrix const& x, Map const& map, void* y, BehindKernel behind,
                     Device const& device, cudaStream_t stream) {
  using Block = NormalizeBlock<kIn>;
  dim3 const block(Block::kLanes, Block::kRows);
  auto const launch = [&](auto const& kernel, int64_t columns) {
    // A grid has at most 65535 blocks along y and along z.
    int64_t const row_blocks = ceil_div(x.rows, Block::kRowsOfBlock);
    int64_t const along_y = std::min<int64_t>(row_blocks, 65535);
    dim3 const grid(unsigned(ceil_div(columns, Block::kColumns)), unsigned(along_y),
                    unsigned(ceil_div(row_blocks, along_y)));
    NormalizeParams<Map> const params{x.data, x.ld, y, x.rows, x.columns, behind, map};
    return KernelLaunch{device, stream, grid, block}(kernel, params);
  };
  if (has_aligned_pieces<kIn>(x) && has_aligned_rows(y, x.columns, kIn)) {
    return launch(normalize<kIn, Map, Access::kAligned>, x.columns);
  }
  if (has_equal_shifts(x, y)) {
    return launch(normalize<kIn, Map, Access::kShifted>, x.columns + Block::kWidth - 1);
  }
  return launch(normalize<kIn, Map, Access::kElements>, x.columns);
}

#define CUTLASS_FUSED_INSTANTIATE_BATCH_NORM(TYPE)                                                 \
  template Status run_column_statistics<DataType::TYPE>(Matrix const&, Ranges const&, void*,       \
                                                        int64_t*, Device const&, cudaStream_t);    \
  template Status run_normalize<DataType::TYPE>(Matrix const&, Normalization const&, void*,        \
                                                BehindKernel, Device const&, cudaStream_t);        \
  template Status run_normalize<DataType::TYPE>(Matrix const&, ScaledNormalization const&, void*,  \
                                                BehindKernel, Device const&, cudaStream_t);        \
  template Status run_normalize<DataType::TYPE>(Matrix const&, RunningNormalization const&, void*, \
                                                BehindKernel, Device const&, cudaStream_t)

}  // namespace cutlass_fused
