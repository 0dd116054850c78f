// The kernel of batch_norm_on_chip.hpp: the gradients of batch_norm.hpp.
#pragma once

#include "cutlass_fused/gradients/batch_norm.cuh"
#include "cutlass_fused/gradients/batch_norm_on_chip.hpp"

namespace cutlass_fused {

template <class T>
struct OnChipGradientParams {
  int64_t m, n;
  T const *grad_y, *z;
  float const* mean;
  T* grad_z;
  int64_t rounds;
  FinishColumnParams finish;
};

// The block's sum of each of this thread's numbers over its lines, in an order of its own: halves
// are added until one is left. All threads get it, and have met when it returns.
template <int kLanes, int kWidth>
__device__ __forceinline__ void add_up_block(
    float (&sums)[kWidth], float (&shared)[OnChipGradient::kThreads / kLanes][kLanes * kWidth]) {
  constexpr int kLines = OnChipGradient::kThreads / kLanes;
  int const lane = int(threadIdx.x) * kWidth, line = int(threadIdx.y);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shared[line][lane + i] = sums[i];
  __syncthreads();
#pragma unroll
  for (int half = kLines / 2; half > 0; half /= 2) {
    if (line < half) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sums[i] += shared[line + half][lane + i];
        shared[line][lane + i] = sums[i];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = shared[0][lane + i];
  __syncthreads();
}

// kept: 2 * rounds pieces of each thread, those of a round side by side.
template <class T, int kLanes>
__device__ __forceinline__ void differentiate_on_chip(OnChipGradientParams<T> const& params,
                                                      uint4* kept) {
  constexpr int kThreads = OnChipGradient::kThreads, kLines = kThreads / kLanes;
  constexpr int kWidth = OnChipGradient::kPieceBytes / int(sizeof(T)), kUnderWay = 4;
  __shared__ float shared[kLines][kLanes * kWidth];
  wait_for_previous_kernel();
  allow_next_kernel();
  int const line = int(threadIdx.y), thread = line * kLanes + int(threadIdx.x);
  int64_t const column = (int64_t(blockIdx.x) * kLanes + threadIdx.x) * kWidth;
  bool const has_columns = column < params.n;  // all of them: n is a multiple of kWidth
  auto const piece_at = [&](T const* matrix, int64_t row) {
    return *reinterpret_cast<uint4 const*>(matrix + row * params.n + column);
  };

  float mean[kWidth], sums[kWidth] = {}, products[kWidth] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) mean[i] = has_columns ? params.mean[column + i] : 0.0f;
  for (int64_t round0 = 0; has_columns && round0 < params.rounds; round0 += kUnderWay) {
    uint4 grads[kUnderWay], numbers[kUnderWay];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      int64_t const row = (round0 + j) * kLines + line;
      if (row >= params.m) continue;
      grads[j] = piece_at(params.grad_y, row);
      numbers[j] = piece_at(params.z, row);
    }
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if ((round0 + j) * kLines + line >= params.m) continue;
      kept[2 * (round0 + j) * kThreads + thread] = grads[j];
      kept[(2 * (round0 + j) + 1) * kThreads + thread] = numbers[j];
      auto const *const grad = reinterpret_cast<T const*>(&grads[j]),
                        *const number = reinterpret_cast<T const*>(&numbers[j]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sums[i] += to_float(grad[i]);
        products[i] += to_float(grad[i]) * (to_float(number[i]) - mean[i]);
      }
    }
  }
  add_up_block<kLanes>(sums, shared);
  add_up_block<kLanes>(products, shared);
  if (!has_columns) return;

  float of_grad[kWidth], of_z[kWidth], constant[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    ColumnGradient const gradient =
        finish_column(params.finish, params.m, column + i, sums[i], products[i], line == 0);
    of_grad[i] = gradient.of_grad;
    of_z[i] = gradient.of_z;
    constant[i] = gradient.constant;
  }
  for (int64_t round = 0; round < params.rounds; ++round) {
    int64_t const row = round * kLines + line;
    if (row >= params.m) break;
    // What this thread has written there itself.
    uint4 grads = kept[2 * round * kThreads + thread];
    uint4 const numbers = kept[(2 * round + 1) * kThreads + thread];
    auto* const grad = reinterpret_cast<T*>(&grads);
    auto const* const number = reinterpret_cast<T const*>(&numbers);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float const shifted = fmaf(of_z[i], to_float(number[i]) - mean[i], constant[i]);
      grad[i] = round_to<T>(fmaf(of_grad[i], to_float(grad[i]), shifted));
    }
    *reinterpret_cast<uint4*>(params.grad_z + row * params.n + column) = grads;
  }
}

#ifdef __CUDACC__
template <class T, int kLanes>
__global__ void __launch_bounds__(OnChipGradient::kThreads)
    differentiate_batch_norm_on_chip(__grid_constant__ OnChipGradientParams<T> const params) {
  extern __shared__ uint4 kept[];
  differentiate_on_chip<T, kLanes>(params, kept);
}
#endif

}  // namespace cutlass_fused
