// What a thread reads of a row in passes that go down columns: the same columns in every row.
#pragma once

#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/gradients/strips.hpp"

namespace cutlass_fused {

// kAligned: 16 bytes side by side; all rows begin at multiples of that. Else numbers that are
// kLanes apart, so that neighbouring threads read side by side.
template <class T, bool kAligned>
struct ColumnPieces {
  using Block = GradientBlock;
  static constexpr int kWidth = 16 / int(sizeof(T)), kColumns = Block::kLanes * kWidth;

  int left;  // of the block's columns, those that there are

  __device__ __forceinline__ ColumnPieces(int64_t n, int64_t column0)
      : left(n - column0 < kColumns ? int(n - column0) : kColumns) {}

  // Of this thread's i-th number, within the block's columns.
  __device__ __forceinline__ static int column(int i) {
    int const lane = int(threadIdx.x);
    return kAligned ? lane * kWidth + i : lane + i * Block::kLanes;
  }
  __device__ __forceinline__ bool has(int i) const { return column(i) < left; }

  // Piece: as many bytes as kWidth numbers have.
  template <class Piece, class Number>
  __device__ __forceinline__ void load(Number const* from, Number (&to)[kWidth]) const {
    static_assert(sizeof(Piece) == sizeof to);
    if constexpr (kAligned) {
      *reinterpret_cast<Piece*>(to) = *reinterpret_cast<Piece const*>(from + column(0));
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (has(i)) to[i] = from[column(i)];
      }
    }
  }
  __device__ __forceinline__ void store(T const (&from)[kWidth], T* to) const {
    if constexpr (kAligned) {
      *reinterpret_cast<uint4*>(to + column(0)) = *reinterpret_cast<uint4 const*>(from);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (has(i)) to[column(i)] = from[i];
      }
    }
  }
};

// The rows of a block's strip, of which a thread takes every kLines-th.
struct StripRows {
  int64_t first, end;

  __device__ __forceinline__ StripRows(int64_t strip, int64_t m)
      : first(int64_t(blockIdx.y) * strip + threadIdx.y),
        end((int64_t(blockIdx.y) + 1) * strip < m ? (int64_t(blockIdx.y) + 1) * strip : m) {}
};

// load(j, row) for a few rows of this thread at once, then use(j, row) for each of them.
template <int kUnderWay, class Load, class Use>
__device__ __forceinline__ void go_down(StripRows const& rows, Load const& load, Use const& use) {
  constexpr int kLines = GradientBlock::kLines;
  for (int64_t row0 = rows.first; row0 < rows.end; row0 += kLines * kUnderWay) {
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (row0 + j * kLines < rows.end) load(j, row0 + j * kLines);
    }
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (row0 + j * kLines < rows.end) use(j, row0 + j * kLines);
    }
  }
}

// to[column] = the sum over the block's lines of what each of its threads has of the column, in
// their order. All threads call it; `shared` may be used again when they have met.
template <class Pieces>
__device__ __forceinline__ void add_up_lines(
    Pieces const& pieces, float const (&sums)[Pieces::kWidth],
    float (&shared)[GradientBlock::kLines][Pieces::kColumns], float* to) {
  using Block = GradientBlock;
#pragma unroll
  for (int i = 0; i < Pieces::kWidth; ++i) shared[threadIdx.y][Pieces::column(i)] = sums[i];
  __syncthreads();
  int const thread = int(threadIdx.y) * Block::kLanes + int(threadIdx.x);
  for (int column = thread; column < pieces.left; column += Block::kThreads) {
    float sum = shared[0][column];
#pragma unroll
    for (int line = 1; line < Block::kLines; ++line) sum += shared[line][column];
    to[column] = sum;
  }
}

// The sum of what the strips have of a column, in the threads of the block's first line; a block
// joins kLanes columns. All threads call it, as above.
__device__ __forceinline__ float join_strips(
    float const* strip_sums, int64_t column, int64_t n, int strips,
    float (&shared)[GradientBlock::kLines][GradientBlock::kLanes]) {
  using Block = GradientBlock;
  int const lane = int(threadIdx.x), line = int(threadIdx.y);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Block::kMostStrips / Block::kLines; ++i) {
    int const strip = line + i * Block::kLines;
    if (column < n && strip < strips) sum += strip_sums[strip * n + column];
  }
  shared[line][lane] = sum;
  __syncthreads();
#pragma unroll
  for (int i = 1; i < Block::kLines; ++i) sum += line == 0 ? shared[i][lane] : 0.0f;
  return sum;
}

}  // namespace cutlass_fused
