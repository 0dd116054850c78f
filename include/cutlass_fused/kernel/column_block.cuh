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

// Calls use(elements, count) for the rows of this thread from `begin` to `end`, kUnroll of them at a
// time, of which the last time may have fewer: elements[0] to elements[count - 1].
template <DataType kIn, class Piece, class T, class Use>
__device__ __forceinline__ void for_each_few_rows(Piece const& piece, T const* x, int64_t ld,
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
    int64_t const left = (end - row + Block::kRows - 1) / Block::kRows;
    use(raw, left < Block::kUnroll ? int(left) : Block::kUnroll);
  }
}

}  // namespace cutlass_fused
