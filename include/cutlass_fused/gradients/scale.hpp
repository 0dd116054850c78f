// The gradient of a scale in front of a batch norm in training. With z = x @ W.T + b, v = z * s,
// n = (v - mean) * rstd and y = n * gamma + beta,
//
//   grad_s[c] = sum of grad_v[r, c] * z[r, c] over r
//
// cancels almost wholly, as a batch norm takes a scale out again: all but the share
// eps * rstd[c]^2 of the variance of v. Where that is small it is
//
//   grad_s[c] = gamma[c] * grad_gamma[c] * eps * rstd[c]^2 / s[c]
//
// and where it is above kShareOfSum, as it is for a scale of zero, the sum over K of the gradient
// of W before it is scaled, times W: rounded to the type of W, as the other is not, so that it is
// taken only where the other divides by next to nothing. Which of the two a column takes is known
// on the device alone: the product that gives the gradient of W reads grad_v * s, and in the
// columns that take the sum grad_v, which `run_unscale_columns` computes again, as batch_norm.hpp
// has it. `run_scale_gradient` then makes of the product what the gradient of W is.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

constexpr float kShareOfSum = 0.9f;

// rows[r, c] = grad_v[r, c] where eps * rstd[c]^2 > kShareOfSum.
struct UnscaleColumns {
  // A block looks for such columns among these, and then takes them row by row.
  static constexpr int kThreads = 256, kColumns = 1024;

  DataType type;                                      // of rows, grad_y and v
  int64_t m, n;                                       // at least 1
  void* rows;                                         // (M, N), contiguous, as grad_y and v
  void const *grad_y, *v;                             // (M, N)
  float const *mean, *rstd, *grad_gamma, *grad_beta;  // (N)
  Vector gamma;
  float eps;
};

Status run_unscale_columns(UnscaleColumns const& columns, Device const& device,
                           cudaStream_t stream);

// Where eps * rstd[c]^2 > kShareOfSum, grad_s[c] = sum of product[c, k] * weight[c, k] over k, and
// then product[c, k] *= s[c]; elsewhere grad_s is as above, and the product stays.
struct ScaleGradient {
  DataType type;
  int64_t n, k;                    // n at least 1
  void* product;                   // (N, K), contiguous, as weight
  void const* weight;              // (N, K)
  float const *rstd, *grad_gamma;  // (N)
  Vector scale, gamma;
  float eps;
  float* grad_scale;  // (N)
};

Status run_scale_gradient(ScaleGradient const& gradient, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
