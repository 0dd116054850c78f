// The kernels of leaky_relu.hpp.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gradients/column_pieces.cuh"
#include "cutlass_fused/gradients/leaky_relu.hpp"

namespace cutlass_fused {

template <class T>
struct LeakyReLUGradientParams {
  int64_t m, n;
  T const* grad_y;
  bool const* positive;
  T* grad_z;
  float* strip_sums;
  float factor, negative_factor;
  int64_t strip;  // rows
};

template <class T, bool kAligned>
__global__ void __launch_bounds__(GradientBlock::kThreads)
    leaky_relu_gradient(__grid_constant__ LeakyReLUGradientParams<T> const params) {
  using Block = GradientBlock;
  using Pieces = ColumnPieces<T, kAligned>;
  constexpr int kWidth = Pieces::kWidth, kUnderWay = Block::kUnderWay;
  using MaskPiece = std::conditional_t<kWidth == 8, uint2, unsigned>;
  __shared__ float shared[Block::kLines][Pieces::kColumns];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column0 = int64_t(blockIdx.x) * Pieces::kColumns;
  Pieces const pieces(params.n, column0);

  float sums[kWidth] = {};
  alignas(16) T numbers[kUnderWay][kWidth];
  alignas(8) bool positive[kUnderWay][kWidth];
  auto const load = [&](int j, int64_t at) {
    pieces.template load<uint4>(params.grad_y + column0 + at, numbers[j]);
    pieces.template load<MaskPiece>(params.positive + column0 + at, positive[j]);
  };
  auto const use = [&](int j, int64_t at) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (!kAligned && !pieces.has(i)) continue;
      float const factor = positive[j][i] ? params.factor : params.negative_factor;
      float const value = to_float(numbers[j][i]) * factor;
      sums[i] += value;
      numbers[j][i] = round_to<T>(value);
    }
    pieces.store(numbers[j], params.grad_z + column0 + at);
  };
  StripRows const rows(blockIdx.y, params.strip, params.m, params.n);
  if (pieces.has(0)) go_down<kUnderWay>(rows, load, use);
  add_up_lines(pieces, sums, shared, params.strip_sums + int64_t(blockIdx.y) * params.n + column0);
}

// sums[n] of the strips' sums.
static __global__ void __launch_bounds__(GradientBlock::kThreads)
    join_column_sums(float const* strip_sums, float* sums, int64_t n, int strips) {
  using Block = GradientBlock;
  __shared__ float shared[1][Block::kLines][Block::kLanes];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column = int64_t(blockIdx.x) * Block::kLanes + threadIdx.x;
  float sum[1];
  join_strips({strip_sums}, column, n, strips, shared, sum);
  if (threadIdx.y == 0 && column < n) sums[column] = sum[0];
}

}  // namespace cutlass_fused
