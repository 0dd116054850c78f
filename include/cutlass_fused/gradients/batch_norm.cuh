// The kernels of batch_norm.hpp.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/store.cuh"
#include "cutlass_fused/gradients/batch_norm.hpp"
#include "cutlass_fused/gradients/column_pieces.cuh"

namespace cutlass_fused {

template <class T>
struct BatchNormGradientParams {
  int64_t m, n;
  T const *grad_y, *z;
  float const* mean;
  T* grad_z;
  float *strip_sums, *strip_products;  // of grad_y, and of grad_y * (z - mean)
  float const *of_grad, *of_z,
      *constant;  // grad_z = of_grad * grad_y + of_z * (z - mean) + constant
  int64_t strip;  // rows
};

// This thread's numbers of a vector.
template <class Pieces>
__device__ __forceinline__ void load_vector(Pieces const& pieces, float const* from,
                                            float (&to)[Pieces::kWidth]) {
#pragma unroll
  for (int i = 0; i < Pieces::kWidth; ++i) to[i] = pieces.has(i) ? from[Pieces::column(i)] : 0.0f;
}

template <class T, bool kAligned>
__global__ void __launch_bounds__(GradientBlock::kThreads,
                                  kAligned ? GradientBlock::kBlocksPerSm : 2)
    add_up_batch_norm_gradient(__grid_constant__ BatchNormGradientParams<T> const params) {
  using Block = GradientBlock;
  using Pieces = ColumnPieces<T, kAligned>;
  constexpr int kWidth = Pieces::kWidth, kUnderWay = Block::kUnderWay;
  __shared__ float shared[Block::kLines][Pieces::kColumns];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column0 = int64_t(blockIdx.x) * Pieces::kColumns;
  Pieces const pieces(params.n, column0);

  float mean[kWidth];
  load_vector(pieces, params.mean + column0, mean);
  float sums[kWidth] = {}, products[kWidth] = {};
  alignas(16) T grads[kUnderWay][kWidth], numbers[kUnderWay][kWidth];
  auto const load = [&](int j, int64_t at) {
    pieces.template load<uint4>(params.grad_y + column0 + at, grads[j]);
    pieces.template load<uint4>(params.z + column0 + at, numbers[j]);
  };
  auto const use = [&](int j, int64_t) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (!kAligned && !pieces.has(i)) continue;
      float const grad = to_float(grads[j][i]);
      sums[i] += grad;
      products[i] += grad * (to_float(numbers[j][i]) - mean[i]);
    }
  };
  StripRows const rows(blockIdx.y, params.strip, params.m, params.n);
  if (pieces.has(0)) go_down<kUnderWay>(rows, load, use);
  int64_t const at = int64_t(blockIdx.y) * params.n + column0;
  add_up_lines(pieces, sums, shared, params.strip_sums + at);
  __syncthreads();
  add_up_lines(pieces, products, shared, params.strip_products + at);
}

// What grad_z is of a column: of_grad * grad_y + of_z * (z - mean) + constant.
struct ColumnGradient {
  float of_grad, of_z, constant;

  // factor: gamma * rstd, and what else multiplies all of it.
  __device__ __forceinline__ ColumnGradient(float factor, float rstd, float grad_gamma,
                                            float grad_beta, float rows)
      : of_grad(factor),
        of_z(-factor * rstd * (grad_gamma / rows)),
        constant(-factor * (grad_beta / rows)) {}
};

// Beside the sums of a column.
struct FinishColumnParams {
  float const* rstd;
  Vector gamma, beta, scale;
  void *grad_gamma, *grad_beta;
  float* grad_scale;  // null where the scale stands in front
  DataType vectors;   // the type of grad_gamma and grad_beta
};

// What a column's vectors have, as it lies there: asked for before its sums are known.
struct ColumnFactors {
  float rstd = 0;
  Vector::Raw gamma = 0, scale = 0;

  __device__ __forceinline__ void fetch(FinishColumnParams const& params, int64_t column) {
    rstd = params.rstd[column];
    gamma = params.gamma.fetch(column);
    scale = params.scale.fetch(column);
  }
};

// Of a column of m rows, from its sum of grad_y and that of grad_y * (z - mean). The gradients of
// its vectors are written by the thread that `writes`.
__device__ __forceinline__ ColumnGradient finish_column(FinishColumnParams const& params,
                                                        ColumnFactors const& factors, int64_t m,
                                                        int64_t column, float sum, float product,
                                                        bool writes) {
  float const rstd = factors.rstd, gamma = params.gamma.convert(factors.gamma),
              scale = params.scale.convert(factors.scale);
  float const sum_n = product * rstd;
  bool const is_behind = params.grad_scale != nullptr;
  if (writes) {
    auto const store = [&](void* gradient, float value) {
      store_from_float(gradient, column, params.vectors, is_behind ? value * scale : value);
    };
    store(params.grad_beta, sum);
    store(params.grad_gamma, sum_n);
    if (is_behind) params.grad_scale[column] = fmaf(sum_n, gamma, sum * params.beta(column));
  }
  return ColumnGradient(gamma * rstd * scale, rstd, sum_n, sum, float(m));
}

struct JoinBatchNormGradientParams {
  int64_t m, n;
  int strips;
  float const *strip_sums, *strip_products;
  FinishColumnParams finish;
  float *of_grad, *of_z, *constant;
};

static __global__ void __launch_bounds__(GradientBlock::kThreads)
    join_batch_norm_gradient(__grid_constant__ JoinBatchNormGradientParams const params) {
  using Block = GradientBlock;
  __shared__ float shared[2][Block::kLines][Block::kLanes];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const column = int64_t(blockIdx.x) * Block::kLanes + threadIdx.x, n = params.n;
  ColumnFactors factors;
  if (threadIdx.y == 0 && column < n) factors.fetch(params.finish, column);
  float sums[2];
  join_strips({params.strip_sums, params.strip_products}, column, n, params.strips, shared, sums);
  if (threadIdx.y > 0 || column >= n) return;
  ColumnGradient const gradient =
      finish_column(params.finish, factors, params.m, column, sums[0], sums[1], /*writes=*/true);
  params.of_grad[column] = gradient.of_grad;
  params.of_z[column] = gradient.of_z;
  params.constant[column] = gradient.constant;
}

// Rows of a thread that are under way: as many as leave registers for kBlocksPerSm.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kAppliedRows = 2;
#else
constexpr int kAppliedRows = GradientBlock::kUnderWay;
#endif

// What the pass before has read last it reads first, and finds in L2 as far as that goes: its
// blocks are those of that pass from the last one on, and each goes up its strip.
template <class T, bool kAligned>
__global__ void __launch_bounds__(GradientBlock::kThreads,
                                  kAligned ? GradientBlock::kBlocksPerSm : 2)
    apply_batch_norm_gradient(__grid_constant__ BatchNormGradientParams<T> const params) {
  using Pieces = ColumnPieces<T, kAligned>;
  constexpr int kWidth = Pieces::kWidth, kUnderWay = kAligned ? kAppliedRows : 4;
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const panels = (params.n + Pieces::kColumns - 1) / Pieces::kColumns;
  int64_t const strips = (params.m + params.strip - 1) / params.strip;
  int64_t const column0 = (panels - 1 - blockIdx.x) * Pieces::kColumns;
  Pieces const pieces(params.n, column0);
  if (!pieces.has(0)) return;

  float mean[kWidth], of_grad[kWidth], of_z[kWidth], constant[kWidth];
  load_vector(pieces, params.mean + column0, mean);
  load_vector(pieces, params.of_grad + column0, of_grad);
  load_vector(pieces, params.of_z + column0, of_z);
  load_vector(pieces, params.constant + column0, constant);
  alignas(16) T grads[kUnderWay][kWidth], numbers[kUnderWay][kWidth];
  auto const load = [&](int j, int64_t at) {
    pieces.template load<uint4, true>(params.grad_y + column0 + at, grads[j]);
    pieces.template load<uint4, true>(params.z + column0 + at, numbers[j]);
  };
  auto const use = [&](int j, int64_t at) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (!kAligned && !pieces.has(i)) continue;
      float const centred = to_float(numbers[j][i]) - mean[i];
      float const shifted = fmaf(of_z[i], centred, constant[i]);
      grads[j][i] = round_to<T>(fmaf(of_grad[i], to_float(grads[j][i]), shifted));
    }
    pieces.store(grads[j], params.grad_z + column0 + at);
  };
  go_up<kUnderWay>(StripRows(strips - 1 - blockIdx.y, params.strip, params.m, params.n), load, use);
}

}  // namespace cutlass_fused
