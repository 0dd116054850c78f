// The gradients of a batch norm in training, through the statistics of the batch. With
// n = (z - mean) * rstd:
//
//   grad_beta[c]  = sum of grad_y[r, c] over r
//   grad_gamma[c] = sum of grad_y[r, c] * n[r, c]
//   grad_z[r, c]  = gamma[c] * rstd[c] * (grad_y[r, c] - (grad_beta[c] + n[r, c] * grad_gamma[c]) /
//   M)
//
// A scale may stand on either side. In front, z = u * scale, what is written is that of u, grad_z *
// scale, and the gradient of the scale is that of scale.hpp. Behind, y = (n * gamma + beta) *
// scale, all three are multiplied by it, and
//
//   grad_scale[c] = gamma[c] * sum of grad_y[r, c] * n[r, c] + beta[c] * sum of grad_y[r, c]
//
// Columns that fit on chip are read once (batch_norm_on_chip.hpp). Of others one pass adds up
// strips of rows, a small kernel joins them, a second pass writes grad_z. All is in fp32, and does
// not depend on which block comes first. Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/gradients/strips.hpp"

namespace cutlass_fused {

struct BatchNormGradient {
  DataType type;       // of grad_y, z and grad_z
  int64_t m, n;        // at least 1
  void const* grad_y;  // (M, N), contiguous, as are z and grad_z
  void const* z;
  float const *mean, *rstd;   // (N)
  Vector gamma, beta, scale;  // beta: for grad_scale alone
  void* grad_z;
  void *grad_gamma, *grad_beta;  // (N)
  float* grad_scale;             // (N) of terms, or null: the scale stands in front
  DataType vectors;              // the type of grad_gamma and grad_beta
  float* workspace;              // words() of them

  // The sums of strips, then three vectors.
  static int64_t words(int64_t n, GradientStrips const& strips) {
    return (2 * strips.count + 3) * n;
  }
};

Status run_batch_norm_gradient(BatchNormGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
