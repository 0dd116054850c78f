// The kernels of leaky_relu.hpp.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/piece.cuh"
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

// kAligned: all rows begin at multiples of 16 bytes, and those of the mask at as many numbers.
// Others are read a number at a time, by neighbouring threads side by side.
template <class T, bool kAligned>
__global__ void __launch_bounds__(GradientBlock::kThreads)
    leaky_relu_gradient(__grid_constant__ LeakyReLUGradientParams<T> const params) {
  using Block = GradientBlock;
  constexpr int kWidth = 16 / int(sizeof(T)), kColumns = Block::kLanes * kWidth;
  using MaskPiece = std::conditional_t<kWidth == 8, uint2, unsigned>;
  static_assert(sizeof(MaskPiece) == kWidth * sizeof(bool));
  __shared__ float shared[Block::kLines][kColumns];
  wait_for_previous_kernel();
  allow_next_kernel();

  int const lane = int(threadIdx.x), line = int(threadIdx.y);
  int64_t const column0 = int64_t(blockIdx.x) * kColumns;
  int64_t const first = int64_t(blockIdx.y) * params.strip;
  int64_t const end = first + params.strip < params.m ? first + params.strip : params.m;
  // Of this thread's i-th number, within the block's columns.
  auto const column = [&](int i) {
    return kAligned ? lane * kWidth + i : lane + i * Block::kLanes;
  };
  int const left = params.n - column0 < kColumns ? int(params.n - column0) : kColumns;

  float sums[kWidth] = {};
  if (column(0) < left) {
    for (int64_t row0 = first + line; row0 < end; row0 += Block::kLines * Block::kUnderWay) {
      alignas(16) T numbers[Block::kUnderWay][kWidth];
      alignas(8) bool positive[Block::kUnderWay][kWidth];
#pragma unroll
      for (int j = 0; j < Block::kUnderWay; ++j) {
        int64_t const row = row0 + j * Block::kLines;
        if (row >= end) continue;
        int64_t const at = row * params.n + column0;
        if constexpr (kAligned) {
          *reinterpret_cast<uint4*>(numbers[j]) =
              *reinterpret_cast<uint4 const*>(params.grad_y + at + column(0));
          *reinterpret_cast<MaskPiece*>(positive[j]) =
              *reinterpret_cast<MaskPiece const*>(params.positive + at + column(0));
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            if (column(i) >= left) continue;
            numbers[j][i] = params.grad_y[at + column(i)];
            positive[j][i] = params.positive[at + column(i)];
          }
        }
      }
#pragma unroll
      for (int j = 0; j < Block::kUnderWay; ++j) {
        int64_t const row = row0 + j * Block::kLines;
        if (row >= end) continue;
        int64_t const at = row * params.n + column0;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          if (!kAligned && column(i) >= left) continue;
          float const value =
              to_float(numbers[j][i]) * (positive[j][i] ? params.factor : params.negative_factor);
          sums[i] += value;
          numbers[j][i] = round_to<T>(value);
          if constexpr (!kAligned) params.grad_z[at + column(i)] = numbers[j][i];
        }
        if constexpr (kAligned) {
          *reinterpret_cast<uint4*>(params.grad_z + at + column(0)) =
              *reinterpret_cast<uint4 const*>(numbers[j]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shared[line][column(i)] = sums[i];
  __syncthreads();
  for (int at = line * Block::kLanes + lane; at < left; at += Block::kThreads) {
    float sum = shared[0][at];
#pragma unroll
    for (int i = 1; i < Block::kLines; ++i) sum += shared[i][at];
    params.strip_sums[int64_t(blockIdx.y) * params.n + column0 + at] = sum;
  }
}

// sums[n] of the strips' sums.
static __global__ void __launch_bounds__(GradientBlock::kThreads)
    join_strips(float const* strip_sums, float* sums, int64_t n, int strips) {
  using Block = GradientBlock;
  __shared__ float shared[Block::kLines][Block::kLanes];
  wait_for_previous_kernel();
  allow_next_kernel();
  int const lane = int(threadIdx.x), line = int(threadIdx.y);
  int64_t const column = int64_t(blockIdx.x) * Block::kLanes + lane;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Block::kMostStrips / Block::kLines; ++i) {
    int const strip = line + i * Block::kLines;
    if (column < n && strip < strips) sum += strip_sums[strip * n + column];
  }
  shared[line][lane] = sum;
  __syncthreads();
  if (line > 0 || column >= n) return;
#pragma unroll
  for (int i = 1; i < Block::kLines; ++i) sum += shared[i][lane];
  sums[column] = sum;
}

}  // namespace cutlass_fused
