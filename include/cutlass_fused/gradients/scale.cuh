// The kernels of scale.hpp.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gradients/batch_norm.cuh"
#include "cutlass_fused/gradients/scale.hpp"
#include "cutlass_fused/softmax/reduce_row.cuh"

namespace cutlass_fused {

// What eps is of the variance of a column.
struct ShareOfEps {
  float share;

  __device__ __forceinline__ ShareOfEps(float rstd, float eps) : share(rstd * rstd * eps) {}
  __device__ __forceinline__ bool takes_the_sum() const { return share > kShareOfSum; }
};

template <class T>
struct UnscaleColumnsParams {
  int64_t m, n;
  T* rows;
  T const *grad_y, *v;
  float const *mean, *rstd, *grad_gamma, *grad_beta;
  Vector gamma;
  float eps;
  int64_t strip;  // rows
};

// Few columns are to be put back, if any, and they may lie anywhere: a block lists its own, and all
// of its threads then share out their numbers.
template <class T>
__global__ void __launch_bounds__(UnscaleColumns::kThreads)
    unscale_columns(__grid_constant__ UnscaleColumnsParams<T> const params) {
  constexpr int kThreads = UnscaleColumns::kThreads, kColumns = UnscaleColumns::kColumns;
  constexpr int kUnderWay = 4;
  constexpr int kWarps = kThreads / 32, kTurns = kColumns / kThreads;
  __shared__ unsigned counts[kWarps];
  __shared__ int listed[kColumns];
  __shared__ float4 gradients[kColumns];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column0 = int64_t(blockIdx.x) * kColumns, n = params.n;
  int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  // Each warp has columns that lie side by side: kTurns times 32.
  int const own = warp * (kColumns / kWarps) + lane;
  unsigned found[kTurns], of_warp = 0;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    int64_t const column = column0 + own + turn * 32;
    bool const takes = column < n && ShareOfEps(params.rstd[column], params.eps).takes_the_sum();
    found[turn] = __ballot_sync(0xffffffffu, takes);
    of_warp += __popc(found[turn]);
  }
  if (lane == 0) counts[warp] = of_warp;
  __syncthreads();
  unsigned place = 0, columns = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) place += counts[i];
    columns += counts[i];
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    if (found[turn] >> lane & 1) {
      int64_t const column = column0 + own + turn * 32;
      float const rstd = params.rstd[column];
      ColumnGradient const gradient(params.gamma(column) * rstd, rstd, params.grad_gamma[column],
                                    params.grad_beta[column], float(params.m));
      unsigned const at = place + __popc(found[turn] & ((1u << lane) - 1));
      listed[at] = own + turn * 32;
      gradients[at] = {gradient.of_grad, gradient.of_z, gradient.constant, params.mean[column]};
    }
    place += __popc(found[turn]);
  }
  __syncthreads();
  int64_t const row0 = int64_t(blockIdx.y) * params.strip;
  int64_t const rows = params.m - row0 < params.strip ? params.m - row0 : params.strip;
  unsigned const numbers = unsigned(rows) * columns;
  for (unsigned first = threadIdx.x; first < numbers; first += kThreads * kUnderWay) {
    float grad_y[kUnderWay], v[kUnderWay];
    int64_t at[kUnderWay];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      unsigned const number = first + j * kThreads;
      if (number >= numbers) continue;
      at[j] = (row0 + number / columns) * n + column0 + listed[number % columns];
      grad_y[j] = to_float(params.grad_y[at[j]]);
      v[j] = to_float(params.v[at[j]]);
    }
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      unsigned const number = first + j * kThreads;
      if (number >= numbers) continue;
      float4 const of = gradients[number % columns];
      params.rows[at[j]] = round_to<T>(fmaf(of.x, grad_y[j], fmaf(of.y, v[j] - of.w, of.z)));
    }
  }
}

struct ScaleGradientBlock {
  static constexpr int kThreads = 256, kRows = 8;
};

template <class T, bool kAligned>
struct ScaledRow {
  static constexpr int kWidth = kAligned ? 16 / int(sizeof(T)) : 1;
  struct alignas(kWidth * sizeof(T)) Piece {
    T numbers[kWidth];
  };

  // The sum of row * weight, by all threads of a block; and row *= scale.
  __device__ __forceinline__ static float run(T* row, T const* weight, int64_t k, float scale,
                                              RowSlots<float>& slots) {
    auto* const pieces = reinterpret_cast<Piece*>(row);
    auto const* const weights = reinterpret_cast<Piece const*>(weight);
    float sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < k / kWidth; i += ScaleGradientBlock::kThreads) {
      Piece piece = pieces[i];
      Piece const of_weight = weights[i];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float const unscaled = to_float(piece.numbers[j]);
        sum = fmaf(unscaled, to_float(of_weight.numbers[j]), sum);
        piece.numbers[j] = round_to<T>(unscaled * scale);
      }
      pieces[i] = piece;
    }
    return reduce_row(sum, slots, 0.0f, TakeSum{});
  }
};

// A block for some rows, of which it takes together those that want the sum: few. That is in fp32,
// in a fixed order.
template <class T, bool kAligned>
__global__ void __launch_bounds__(ScaleGradientBlock::kThreads)
    scale_gradient(__grid_constant__ ScaleGradient const params) {
  using Block = ScaleGradientBlock;
  __shared__ RowSlots<float> slots;
  __shared__ bool takes_the_sum[Block::kRows];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const row0 = int64_t(blockIdx.x) * Block::kRows;
  int64_t const own = row0 + threadIdx.x;
  bool takes = false;
  if (threadIdx.x < Block::kRows && own < params.n) {
    ShareOfEps const eps(params.rstd[own], params.eps);
    takes = eps.takes_the_sum();
    if (!takes) {
      params.grad_scale[own] =
          params.gamma(own) * params.grad_gamma[own] * eps.share / params.scale(own);
    }
  }
  if (threadIdx.x < Block::kRows) takes_the_sum[threadIdx.x] = takes;
  __syncthreads();
  for (int i = 0; i < Block::kRows; ++i) {
    if (!takes_the_sum[i]) continue;
    int64_t const row = row0 + i;
    float const sum = ScaledRow<T, kAligned>::run(
        static_cast<T*>(params.product) + row * params.k,
        static_cast<T const*>(params.weight) + row * params.k, params.k, params.scale(row), slots);
    if (threadIdx.x == 0) params.grad_scale[row] = sum;
    __syncthreads();
  }
}

}  // namespace cutlass_fused
