// The running statistics of one column, moved by a batch's mean and M2.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/common/store.cuh"

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

// The running statistics of a column as they lie in memory.
struct RunningRaw {
  Vector::Raw mean, var;
};

// To ask for them and to move them are two steps, so that others are asked for in between.
__device__ __forceinline__ RunningRaw fetch_running(RunningStatistics const& running, int64_t n) {
  return {view_running(running.mean).fetch(n), view_running(running.var).fetch(n)};
}

// Where the mean is cumulative the batch must have been counted already.
__device__ __forceinline__ void move_running(RunningStatistics const& running, int64_t n,
                                             RunningRaw const& old, double mean, double m2,
                                             double rows) {
  double const momentum =
      running.cumulative ? 1.0 / double(*running.num_batches_tracked) : running.momentum;
  move_running(running.mean, n, view_running(running.mean).convert(old.mean), momentum, mean);
  move_running(running.var, n, view_running(running.var).convert(old.var), momentum,
               m2 / (rows - 1.0));
}

__device__ __forceinline__ void move_running(RunningStatistics const& running, int64_t n,
                                             double mean, double m2, double rows) {
  move_running(running, n, fetch_running(running, n), mean, m2, rows);
}

}  // namespace cutlass_fused
