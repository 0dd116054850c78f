// The gradient of v = z * factor in front of LeakyReLU, and its column sums, in one pass:
//
//   grad_z[m, n] = grad_y[m, n] * (positive[m, n] ? factor : negative_factor)
//   sums[n]      = sum of grad_z[m, n] over m, in fp32 and before it is rounded
//
// The sums are the gradient of a bias. They come of strips of rows, which a second kernel joins, so
// that they do not depend on which block comes first.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/gradients/strips.hpp"

namespace cutlass_fused {

struct LeakyReLUGradient {
  DataType type;       // of grad_y and grad_z
  int64_t m, n;        // at least 1
  void const* grad_y;  // (M, N), contiguous, as are the others
  bool const* positive;
  void* grad_z;
  float* strip_sums;  // (strips, N)
  float* sums;        // (N)
  float factor, negative_factor;
};

Status run_leaky_relu_gradient(LeakyReLUGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
