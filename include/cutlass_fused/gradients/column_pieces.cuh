// What a thread reads of a row in passes that go down columns: the same columns in every row.
#pragma once

#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/common/store.cuh"
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

  // Piece: as many bytes as kWidth numbers have. kLast: nobody reads them again soon, and L2 may
  // give their place away first.
  template <class Piece, bool kLast = false, class Number>
  __device__ __forceinline__ void load(Number const* from, Number (&to)[kWidth]) const {
    static_assert(sizeof(Piece) == sizeof to);
    if constexpr (kAligned) {
      auto const piece = reinterpret_cast<Piece const*>(from + column(0));
      *reinterpret_cast<Piece*>(to) = kLast ? __ldcs(piece) : *piece;
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (has(i)) to[i] = from[column(i)];
      }
    }
  }
  __device__ __forceinline__ void store(T const (&from)[kWidth], T* to) const {
    if constexpr (kAligned) {
      store_packed(to + column(0), *reinterpret_cast<uint4 const*>(from));
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (has(i)) to[column(i)] = from[i];
      }
    }
  }
};

// The rows of a strip, of which a thread takes every kLines-th, in a matrix of n columns.
struct StripRows {
  int64_t first, step;  // where the thread's first row begins, and how far behind it the next one
  int left;             // rows from the thread's first one to the end of the strip

  __device__ __forceinline__ StripRows(int64_t index, int64_t strip, int64_t m, int64_t n)
      : first((index * strip + threadIdx.y) * n), step(GradientBlock::kLines * n) {
    int64_t const end = (index + 1) * strip < m ? (index + 1) * strip : m;
    left = int(end - index * strip) - int(threadIdx.y);
  }
};

// load(j, at) for a few rows of this thread at once, then use(j, at) for each of them: rows that
// begin at `at`.
template <int kUnderWay, class Load, class Use>
__device__ __forceinline__ void take_rows(int64_t at, int64_t step, int left, Load const& load,
                                          Use const& use) {
  constexpr int kLines = GradientBlock::kLines;
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) {
    if (j * kLines < left) load(j, at + j * step);
  }
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) {
    if (j * kLines < left) use(j, at + j * step);
  }
}

template <int kUnderWay, class Load, class Use>
__device__ __forceinline__ void go_down(StripRows const& rows, Load const& load, Use const& use) {
  int64_t at = rows.first;
#pragma unroll 1
  for (int left = rows.left; left > 0; left -= GradientBlock::kLines * kUnderWay) {
    take_rows<kUnderWay>(at, rows.step, left, load, use);
    at += kUnderWay * rows.step;
  }
}

// From the last rows on: those that a pass down the same strips has read last, and left in L2.
template <int kUnderWay, class Load, class Use>
__device__ __forceinline__ void go_up(StripRows const& rows, Load const& load, Use const& use) {
  constexpr int kTurn = GradientBlock::kLines * kUnderWay;
  if (rows.left <= 0) return;
  int const turns = (rows.left - 1) / kTurn;
  int64_t at = rows.first + turns * (kUnderWay * rows.step);
#pragma unroll 1
  for (int left = rows.left - turns * kTurn; left <= rows.left; left += kTurn) {
    take_rows<kUnderWay>(at, rows.step, left, load, use);
    at -= kUnderWay * rows.step;
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

// sums[i] = the sum of what the strips have of a column in from[i], in the threads of the block's
// first line; a block joins kLanes columns. All threads call it, as above.
template <int kCount>
__device__ __forceinline__ void join_strips(
    float const* const (&from)[kCount], int64_t column, int64_t n, int strips,
    float (&shared)[kCount][GradientBlock::kLines][GradientBlock::kLanes], float (&sums)[kCount]) {
  using Block = GradientBlock;
  int const lane = int(threadIdx.x), line = int(threadIdx.y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0;
#pragma unroll 8
  for (int strip = line; column < n && strip < strips; strip += Block::kLines) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += from[i][strip * n + column];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) shared[i][line][lane] = sums[i];
  __syncthreads();
#pragma unroll
  for (int other = 1; other < Block::kLines; ++other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += line == 0 ? shared[i][other][lane] : 0.0f;
  }
}

}  // namespace cutlass_fused
