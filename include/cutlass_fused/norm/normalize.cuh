// y = map(x), a map per column such as a batch norm: one read and one write.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/norm/block_columns.cuh"
#include "cutlass_fused/norm/columns_of_piece.cuh"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/norm/normalization.hpp"

namespace cutlass_fused {

template <class Map>
struct NormalizeParams {
  void const* x;
  int64_t ldx;
  void* y;
  int64_t rows, columns;
  BehindKernel behind;  // a merge: x is read at once
  Map map;              // of normalization.hpp
};

// A few rows for each block, without a loop: all its loads are in flight at once, and neighbouring
// blocks read neighbouring memory. On an H200 large matrices took as long as to be copied; in
// blocks of a few hundred rows they took longer.
template <DataType kIn>
struct NormalizeBlock {
  static constexpr int kWidth = kPieceWidth<kIn>;
  // Threads along the columns: the rows of a thread, so many apart, lie equally behind boundaries
  // of 16 bytes, whatever their distance.
  static constexpr int kRows = kWidth;
  static constexpr int kThreads = 256;
  static constexpr int kLanes = kThreads / kRows;  // threads along a row
  static constexpr int kColumns = kLanes * kWidth;
  static constexpr int kUnroll = 4;  // rows of a thread
  static constexpr int kRowsOfBlock = kRows * kUnroll;
};

// Blocks on an SM. The addresses of single elements take registers, and so does a scale of columns
// where rows are not aligned.
template <class Map, Access kAccess>
constexpr int kNormalizeBlocks = [] {
  constexpr bool kScaled = sizeof(typename Map::Column) > 3 * sizeof(float);
  if (kAccess == Access::kAligned) return 4;
  return kAccess == Access::kElements || kScaled ? 3 : 4;
}();

template <DataType kIn, class Map, Access kAccess>
__global__ void __launch_bounds__(NormalizeBlock<kIn>::kThreads, kNormalizeBlocks<Map, kAccess>)
    normalize(__grid_constant__ NormalizeParams<Map> const params) {
  using Block = NormalizeBlock<kIn>;
  using T = Storage<kIn>;
  constexpr int kWidth = Block::kWidth;
  __shared__ BlockColumns<Map, Block::kColumns, kWidth, kAccess> kept;
  int const base = blockIdx.x * Block::kColumns;
  // From the last rows to the first: those were read or written last and may still be in L2.
  int64_t const back = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  int64_t const row_block = int64_t(gridDim.z) * gridDim.y - 1 - back;
  int64_t const row = row_block * Block::kRowsOfBlock + int(threadIdx.y);
  int const left = int(min(params.rows - row, int64_t(Block::kRowsOfBlock)));
  int const columns = int(params.columns);
  T const* const from = static_cast<T const*>(params.x) + row * params.ldx;
  Piece<kWidth, kAccess> const piece(base + int(threadIdx.x) / 32 * 32 * kWidth, threadIdx.x % 32,
                                     find_shift<kAccess>(from));

  // Nearly every thread has all its pieces: it looks at that once.
  bool const whole = piece.is_whole(columns) && left > (Block::kUnroll - 1) * Block::kRows;
  auto const for_each_row = [&](auto const& use) {
    if (whole) {
#pragma unroll
      for (int u = 0; u < Block::kUnroll; ++u) use(u);
    } else {
#pragma unroll
      for (int u = 0; u < Block::kUnroll; ++u) {
        if (u * Block::kRows < left) use(u);
      }
    }
  };

  alignas(16) T raw[Block::kUnroll][kWidth];
  auto const load = [&](auto fresh) {
    for_each_row([&](int u) {
      T const* const x = from + u * Block::kRows * params.ldx;
      piece.template load<decltype(fresh)::value>(x, columns, raw[u]);
    });
  };
  bool moved = false;
  if (params.behind.merges) {
    load(std::true_type{});
    wait_for_previous_kernel();
    if (size_of(kIn) == 2) moved = was_moved(params.behind.moved, piece, columns);
  } else {
    wait_for_previous_kernel();
    load(std::false_type{});
  }
  kept.template fill<Block::kThreads>(params.map, base, columns,
                                      threadIdx.y * Block::kLanes + threadIdx.x);
  __syncthreads();
  if (moved) load(std::true_type{});

  typename Map::Column own[kWidth];
  kept.read(piece, base, own);
  T* const to = static_cast<T*>(params.y) + row * params.columns;
  for_each_row([&](int u) {
    float y[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = own[i](to_float(raw[u][i]));
    piece.store(y, to + u * Block::kRows * params.columns, columns);
  });
}

}  // namespace cutlass_fused
