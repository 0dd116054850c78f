// y = map(x), a map per column such as a batch norm: one read and one write, a block's columns read
// once.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/kernel/column_block.cuh"
#include "cutlass_fused/kernel/columns_of_piece.cuh"
#include "cutlass_fused/kernel/launch.cuh"
#include "cutlass_fused/normalization.hpp"

namespace cutlass_fused {

template <class Map>
struct NormalizeParams {
  void const* x;
  int64_t ldx;
  void* y;
  int64_t rows, columns, rows_per_block;
  Map map;  // of normalization.hpp
};

// Blocks on an SM: as many as the registers of a thread's columns allow.
template <DataType kIn, class Map, Access kAccess>
constexpr int kNormalizeBlocks = [] {
  constexpr bool kScaled = sizeof(typename Map::Column) > 3 * sizeof(float);
  if (kAccess != Access::kAligned || kScaled) return 2;
  return kIn == DataType::kFloat32 ? 4 : 3;
}();

template <DataType kIn, class Map, Access kAccess>
__global__ void __launch_bounds__(ColumnBlock<kIn>::kThreads, kNormalizeBlocks<kIn, Map, kAccess>)
    normalize(__grid_constant__ NormalizeParams<Map> const params) {
  using Block = ColumnBlock<kIn>;
  using In = typename StorageOf<kIn>::type;
  constexpr int kWidth = Block::kWidth;
  int const base = blockIdx.x * Block::kColumns;
  Piece<kWidth, kAccess> const piece(base, threadIdx.x);

  wait_for_previous_kernel();
  typename Map::Column columns[kWidth];
  load_columns(params.map, piece, int(params.columns), columns);
  // From the last rows to the first: those were read or written last and may still be in L2.
  int64_t const begin = int64_t(gridDim.y - 1 - blockIdx.y) * params.rows_per_block;
  int64_t const end = min(begin + params.rows_per_block, params.rows);
  for_each_row<kIn>(piece, static_cast<In const*>(params.x), params.ldx, begin, end,
                    int(params.columns), [&](int64_t row, In const(&elements)[kWidth]) {
                      float y[kWidth];
#pragma unroll
                      for (int i = 0; i < kWidth; ++i) y[i] = columns[i](to_float(elements[i]));
                      piece.store(y, static_cast<In*>(params.y) + row * params.columns,
                                  params.columns);
                    });
}

}  // namespace cutlass_fused
