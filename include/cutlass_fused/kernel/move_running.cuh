// The running statistics of one column, moved by a batch's mean and M2.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/batch_norm.hpp"
#include "cutlass_fused/kernel/store.cuh"

namespace cutlass_fused {

__device__ __forceinline__ Vector view_running(RunningVector const& running) {
  return {running.data, running.stride, running.type, 0.0f};
}

__device__ __forceinline__ void move_running(RunningVector const& running, int64_t n, float old,
                                             double momentum, double value) {
  if (running.data == nullptr) return;
  store_from_float(running.data, n * running.stride, running.type,
                   float((1.0 - momentum) * old + momentum * value));
}

// Where the mean is cumulative the batch must have been counted already.
__device__ __forceinline__ void move_running(RunningStatistics const& running, int64_t n,
                                             double mean, double m2, double rows) {
  double const momentum =
      running.cumulative ? 1.0 / double(*running.num_batches_tracked) : running.momentum;
  // Both are asked for before one is needed.
  Vector const old_mean = view_running(running.mean), old_var = view_running(running.var);
  Vector::Raw const raw_mean = old_mean.fetch(n), raw_var = old_var.fetch(n);
  move_running(running.mean, n, old_mean.convert(raw_mean), momentum, mean);
  move_running(running.var, n, old_var.convert(raw_var), momentum, m2 / (rows - 1.0));
}

}  // namespace cutlass_fused
