// Row softmax of aligned fp32 rows of 257 to 1024 columns: each warp is a block, and ends.
//
// Its reads are under way at once, and more of them than with the row on several warps. Reductions
// go by shuffles: with integer ones, which take less time, 16384 x 512 took 3% more on an H200.
#pragma once

#include "cutlass_fused/softmax/row_softmax.cuh"

namespace cutlass_fused {

// Rows of a warp, and elements of each in a thread.
template <int kRowsOfWarp, int kElementsOfRow>
struct ShortRows {
  static constexpr int kRows = kRowsOfWarp, kElements = kElementsOfRow;
  static constexpr int kBlocks = 32;  // on an SM: 64 registers
};
using ShortRow = ShortRows<1, 16>;
using TwoShortRows = ShortRows<2, 16>;
using LongerRow = ShortRows<1, 32>;

// 80 registers where a thread may have no part of a piece: 64 are too few.
template <class Shape, Access kAccess>
constexpr int kShortBlocks = kAccess == Access::kWhole ? Shape::kBlocks : Shape::kBlocks - 8;

// params.rows is a multiple of kRows.
template <DataType kOut, class Prologue, class Shape, Access kAccess>
__global__ void __launch_bounds__(32, kShortBlocks<Shape, kAccess>)
    row_softmax_short(__grid_constant__ RowSoftmaxParams<Prologue> const params) {
  using Out = Storage<kOut>;
  constexpr int kRows = Shape::kRows, kWidth = kPieceWidth<DataType::kFloat32>;
  constexpr int kPieces = Shape::kElements / kWidth;
  static_assert(32 * Shape::kElements <= kMostAddedUp);
  int const columns = int(params.columns);
  auto const piece = [&](int p) { return Piece<kWidth, kAccess>(p * 32 * kWidth, threadIdx.x); };
  int64_t const first = int64_t(blockIdx.x) * kRows;
  auto const x = static_cast<float const*>(params.x) + first * params.ldx;
  auto const y = static_cast<Out*>(params.y) + first * columns;

  alignas(16) float v[kRows][kPieces][kWidth];
  wait_for_previous_kernel();
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) piece(p).load(x + row * params.ldx, columns, v[row][p]);
  }
  float const factor = params.prologue.factor();

  float max[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    max[row] = -INFINITY;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float& element = v[row][p][i];
        element = piece(p).holds(i, columns) ? scale_by<Prologue>(element, factor) : -INFINITY;
        max[row] = TakeRowMax<kOut>{}(max[row], element);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    max[row] = reduce_warp(max[row], ByShuffles<TakeRowMax<kOut>>{});
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    ThreadSum<kOut, 1> thread_sum;
    // The sum of a row of nothing but -inf is 0; exp(-inf - -inf) would be NaN.
    float const subtrahend = max[row] == -INFINITY ? 0.0f : max[row];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) exponentiate<kOut>(v[row][p], subtrahend, thread_sum);
    MultiplyBy<kOut> const divide(reciprocal(thread_sum.add_up(max[row], ByShuffles<TakeSum>{})));
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[row][p][i] = divide(v[row][p][i]);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) piece(p).store(v[row][p], y + row * columns, columns);
  }
}

}  // namespace cutlass_fused
