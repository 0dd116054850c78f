// The running statistics of one column, moved by a batch's mean and M2.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/batch_norm.hpp"
#include "cutlass_fused/kernel/store.cuh"

namespace cutlass_fused {

__device__ __forceinline__ void move_running(RunningVector const& running, int64_t n,
                                             double momentum, double value) {
  if (running.data == nullptr) return;
  int64_t const offset = n * running.stride;
  float const old = Vector{running.data, 1, running.type, 0.0f}(offset);
  store_from_float(running.data, offset, running.type,
                   float((1.0 - momentum) * old + momentum * value));
}

// Where the mean is cumulative the batch must have been counted already.
__device__ __forceinline__ void move_running(RunningStatistics const& running, int64_t n,
                                             double mean, double m2, double rows) {
  double const momentum =
      running.cumulative ? 1.0 / double(*running.num_batches_tracked) : running.momentum;
  move_running(running.mean, n, momentum, mean);
  move_running(running.var, n, momentum, m2 / (rows - 1.0));
}

}  // namespace cutlass_fused
