// The kernels of scale.hpp.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gradients/column_pieces.cuh"
#include "cutlass_fused/gradients/scale.hpp"
#include "cutlass_fused/softmax/reduce_row.cuh"

namespace cutlass_fused {

// What eps is of the variance of a column.
struct ShareOfEps {
  float share;

  __device__ __forceinline__ ShareOfEps(float rstd, float eps) : share(rstd * rstd * eps) {}
  __device__ __forceinline__ bool takes_the_sum() const { return share > 0.5f; }
};

template <class T>
struct UnscaleColumnsParams {
  int64_t m, n;
  T* rows;
  T const* grad_v;
  float const* rstd;
  float eps;
  int64_t strip;  // rows
};

// Columns by columns of threads, each a number wide: few blocks have any to put back.
template <class T>
__global__ void __launch_bounds__(GradientBlock::kThreads)
    unscale_columns(__grid_constant__ UnscaleColumnsParams<T> const params) {
  using Block = GradientBlock;
  using Pieces = ColumnPieces<T, false>;
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column0 = int64_t(blockIdx.x) * Pieces::kColumns;
  Pieces const pieces(params.n, column0);
  StripRows const strip(params.strip, params.m);
#pragma unroll
  for (int i = 0; i < Pieces::kWidth; ++i) {
    int64_t const column = column0 + Pieces::column(i);
    if (!pieces.has(i) || !ShareOfEps(params.rstd[column], params.eps).takes_the_sum()) continue;
    for (int64_t row = strip.first; row < strip.end; row += Block::kLines) {
      params.rows[row * params.n + column] = params.grad_v[row * params.n + column];
    }
  }
}

struct ScaleGradientBlock {
  static constexpr int kThreads = 128;
};

// A block for each row. The sum is in fp32, in a fixed order.
template <class T>
__global__ void __launch_bounds__(ScaleGradientBlock::kThreads)
    scale_gradient(__grid_constant__ ScaleGradient const params) {
  __shared__ RowSlots<float> slots;
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const row = blockIdx.x;
  ShareOfEps const eps(params.rstd[row], params.eps);
  float const scale = params.scale[row];
  if (!eps.takes_the_sum()) {
    if (threadIdx.x > 0) return;
    float const gamma = params.gamma == nullptr ? 1.0f : params.gamma[row];
    params.grad_scale[row] = gamma * params.grad_gamma[row] * eps.share / scale;
    return;
  }
  T* const product = static_cast<T*>(params.product) + row * params.k;
  T const* const weight = static_cast<T const*>(params.weight) + row * params.k;
  float sum = 0;
  for (int64_t k = threadIdx.x; k < params.k; k += ScaleGradientBlock::kThreads) {
    float const unscaled = to_float(product[k]);
    sum += unscaled * to_float(weight[k]);
    product[k] = round_to<T>(unscaled * scale);
  }
  sum = reduce_row(sum, slots, 0.0f, TakeSum{});
  if (threadIdx.x == 0) params.grad_scale[row] = sum;
}

}  // namespace cutlass_fused
