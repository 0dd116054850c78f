// The block that finds statistics of columns: 4 rows of 64 threads, 16 bytes of a row per thread.
#pragma once

#include "cutlass_fused/common/piece.cuh"

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

// Calls use(elements, before) for this thread's share of so many rows of x, elements being those of
// kUnroll rows, of a single one where fewer are left, behind `before` others. Its counts are ints,
// which take half the registers: a range has no more rows.
template <DataType kIn, class Piece, class T, class Use>
__device__ __forceinline__ void for_each_few_rows(Piece const& piece, T const* x, int64_t ld,
                                                  int rows, int columns, Use const& use) {
  using Block = ColumnBlock<kIn>;
  constexpr int kUnroll = Block::kUnroll;
  x += int(threadIdx.y) * ld;
  int const share = (rows - int(threadIdx.y) + Block::kRows - 1) / Block::kRows;
  for (int row = 0; row < share; row += kUnroll, x += kUnroll * Block::kRows * ld) {
    alignas(16) T raw[kUnroll][Block::kWidth];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (row + u < share) piece.load(x + u * Block::kRows * ld, columns, raw[u]);
    }
    if (row + kUnroll <= share) {
      use(raw, row);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll - 1; ++u) {
        T(&single)[1][Block::kWidth] = *reinterpret_cast<T(*)[1][Block::kWidth]>(&raw[u]);
        if (row + u < share) use(single, row + u);
      }
    }
  }
}

}  // namespace cutlass_fused
