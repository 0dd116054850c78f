// The block that finds statistics of columns: 4 rows of 64 threads, 16 bytes of a row per thread.
#pragma once

#include "cutlass_fused/kernel/piece.cuh"

namespace cutlass_fused {

template <DataType kIn>
struct ColumnBlock {
  static constexpr int kLanes = 64;  // threads along a row
  static constexpr int kRows = 4;    // threads along the columns
  static constexpr int kThreads = kLanes * kRows;
  static constexpr int kWidth = kPieceWidth<kIn>;  // columns of a thread
  static constexpr int kColumns = kLanes * kWidth;
  static constexpr int kUnroll = 4;  // rows that a thread loads before it computes
};

// Calls use(row, elements) for every row of this thread from `begin` to `end`, kUnroll loads at a
// time.
template <DataType kIn, class Piece, class T, class Use>
__device__ __forceinline__ void for_each_row(Piece const& piece, T const* x, int64_t ld,
                                             int64_t begin, int64_t end, int columns,
                                             Use const& use) {
  using Block = ColumnBlock<kIn>;
  constexpr int kStep = Block::kRows * Block::kUnroll;
  for (int64_t row = begin + threadIdx.y; row < end; row += kStep) {
    alignas(16) T raw[Block::kUnroll][Block::kWidth];
#pragma unroll
    for (int u = 0; u < Block::kUnroll; ++u) {
      int64_t const m = row + u * Block::kRows;
      if (m < end) piece.load(x + m * ld, columns, raw[u]);
    }
#pragma unroll
    for (int u = 0; u < Block::kUnroll; ++u) {
      int64_t const m = row + u * Block::kRows;
      if (m < end) use(m, raw[u]);
    }
  }
}

}  // namespace cutlass_fused
