// The kernel of batch_norm_on_chip.hpp: the gradients of batch_norm.hpp.
#pragma once

#include "cutlass_fused/gradients/batch_norm.cuh"
#include "cutlass_fused/gradients/batch_norm_on_chip.hpp"
#include "cutlass_fused/gradients/blocks_together.cuh"
#include "cutlass_fused/norm/on_chip/cluster_sums_sm90.cuh"

namespace cutlass_fused {

template <class T>
struct OnChipGradientParams {
  int64_t m, n;
  T const *grad_y, *z;
  float const* mean;
  T* grad_z;
  int64_t rows;  // of a block
  FinishColumnParams finish;
};

// What cluster_sums_sm90.cuh wants to know of a block.
template <class T, int kLanes_>
struct OnChipGradientBlock {
  static constexpr int kThreads = OnChipGradient::kThreads, kLanes = kLanes_;
  static constexpr int kWidth = OnChipGradient::kPieceBytes / int(sizeof(T));
  static constexpr int kColumns = kLanes * kWidth, kLines = kThreads / kLanes;
  static constexpr int kRowsOfWarp = 32 / kLanes, kWarps = kThreads / 32;
};

template <class Block>
struct OnChipGradientShared {
  alignas(16) WarpSums<Block> warps[2];        // of grad_y, and of grad_y * (z - mean)
  alignas(16) float sums[2][Block::kColumns];  // of the block, for the others
  alignas(16) float of_grad[Block::kColumns], of_z[Block::kColumns], constant[Block::kColumns];
};

// kept: what the plan's kept_bytes() hold, the pieces of a row side by side. All sums are in a
// fixed order: that of a thread's rows, of threads, warps and blocks.
template <class T, int kLanes, class Together>
__device__ __forceinline__ void differentiate_on_chip(
    OnChipGradientParams<T> const& params, Together const& together,
    OnChipGradientShared<OnChipGradientBlock<T, kLanes>>& shared, uint4* kept) {
  using Block = OnChipGradientBlock<T, kLanes>;
  constexpr int kWidth = Block::kWidth, kColumns = Block::kColumns, kLines = Block::kLines;
  constexpr int kThreads = Block::kThreads, kUnderWay = OnChipGradient::kUnderWay;
  wait_for_previous_kernel();
  allow_next_kernel();
  int const thread = int(threadIdx.x), lane = thread % kLanes, line = thread / kLanes;
  int64_t const n = params.n, column0 = int64_t(blockIdx.x / unsigned(together.count)) * kColumns;
  int64_t const column = column0 + lane * kWidth, row0 = together.rank * params.rows;
  // The column whose sums this thread finishes.
  bool const finishes = thread < kColumns && column0 + thread < n;
  // Of this thread. It has all columns of a piece or none: n is a multiple of kWidth.
  int const left = int(min(params.m - row0, params.rows)) - line;
  int const rows = column < n && left > 0 ? (left + kLines - 1) / kLines : 0;
  int64_t const step = kLines * n;
  int64_t at = (row0 + line) * n + column;

  float mean[kWidth], sums[kWidth] = {}, products[kWidth] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) mean[i] = rows > 0 ? params.mean[column + i] : 0.0f;
  uint4 grads[kUnderWay], numbers[kUnderWay];
  int behind = 0;  // rows that are in shared memory
#pragma unroll 1
  for (;; at += kUnderWay * step) {
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (behind + j >= rows) continue;
      grads[j] = *reinterpret_cast<uint4 const*>(params.grad_y + at + j * step);
      numbers[j] = *reinterpret_cast<uint4 const*>(params.z + at + j * step);
    }
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (behind + j >= rows) continue;
      auto const *const grad = reinterpret_cast<T const*>(&grads[j]),
                        *const number = reinterpret_cast<T const*>(&numbers[j]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sums[i] += to_float(grad[i]);
        products[i] += to_float(grad[i]) * (to_float(number[i]) - mean[i]);
      }
    }
    if (behind + kUnderWay >= rows) break;
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      kept[2 * (behind + j) * kThreads + thread] = grads[j];
      kept[(2 * (behind + j) + 1) * kThreads + thread] = numbers[j];
    }
    behind += kUnderWay;
  }

  write_warp_sums<Block>(sums, shared.warps[0]);
  write_warp_sums<Block>(products, shared.warps[1]);
  ColumnFactors factors;
  if (finishes) factors.fetch(params.finish, column0 + thread);
  __syncthreads();
  if (thread < 2 * kColumns) {
    float sum[1];
    int const which = thread / kColumns, of = thread % kColumns;
    add_warp_sums<Block>(shared.warps[which], of, sum);
    shared.sums[which][of] = sum[0];
  }
  together.meet();
  if (finishes) {
    float sum = 0, product = 0;
    for (int block = 0; block < together.count; ++block) {
      sum += together.read(shared.sums[0][thread], block);
      product += together.read(shared.sums[1][thread], block);
    }
    ColumnGradient const gradient =
        finish_column(params.finish, factors, params.m, column0 + thread, sum, product,
                      /*writes=*/together.rank == 0);
    shared.of_grad[thread] = gradient.of_grad;
    shared.of_z[thread] = gradient.of_z;
    shared.constant[thread] = gradient.constant;
  }
  together.say_that_it_has_read();
  __syncthreads();

  alignas(16) float of_grad[kWidth], of_z[kWidth], constant[kWidth];
  load_shared(&shared.of_grad[lane * kWidth], of_grad);
  load_shared(&shared.of_z[lane * kWidth], of_z);
  load_shared(&shared.constant[lane * kWidth], constant);
  auto const write = [&](uint4 of_grad_y, uint4 const& of_row_z, int64_t to) {
    auto* const grad = reinterpret_cast<T*>(&of_grad_y);
    auto const* const number = reinterpret_cast<T const*>(&of_row_z);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float const shifted = fmaf(of_z[i], to_float(number[i]) - mean[i], constant[i]);
      grad[i] = round_to<T>(fmaf(of_grad[i], to_float(grad[i]), shifted));
    }
    store_packed(params.grad_z + to, of_grad_y);
  };
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) {
    if (behind + j < rows) write(grads[j], numbers[j], at + j * step);
  }
  // What this thread has written there itself.
#pragma unroll 2
  for (int row = behind - 1; row >= 0; --row) {
    at -= step;
    write(kept[2 * row * kThreads + thread], kept[(2 * row + 1) * kThreads + thread], at);
  }
  together.wait_for_readers();
}

#ifdef __CUDACC__
template <class T, int kLanes>
__global__ void __launch_bounds__(OnChipGradient::kThreads, OnChipGradient::kBlocksPerSm)
    differentiate_batch_norm_on_chip(__grid_constant__ OnChipGradientParams<T> const params) {
  extern __shared__ uint4 kept[];
  __shared__ OnChipGradientShared<OnChipGradientBlock<T, kLanes>> shared;
  BlocksTogether const together;
  differentiate_on_chip<T, kLanes>(params, together, together.own(shared), kept);
}
#endif

}  // namespace cutlass_fused
