// The gradient of v in front of y = softmax(v) over rows, in one pass:
//
//   grad_v[m, n] = y[m, n] * (grad_y[m, n] - sum of grad_y[m, :] * y[m, :])
//
// in fp32, rounded once. The sum of a row is taken in an order that depends on N alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

struct SoftmaxGradient {
  DataType type;       // of all three matrices
  int64_t m, n;        // at least 1
  void const* grad_y;  // (M, N), contiguous, as are the others
  void const* y;
  void* grad_v;
};

Status run_softmax_gradient(SoftmaxGradient const& gradient, Device const& device,
                            cudaStream_t stream);

}  // namespace cutlass_fused
