// In front of a kernel whose blocks wait for each other's partial statistics: none is there yet.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/norm/statistics/part_statistics.hpp"
#include "cutlass_fused/common/launch.cuh"

namespace cutlass_fused {

struct ClearParts {
  static constexpr int kThreads = 256, kOfThread = 4;
};

static __global__ void __launch_bounds__(ClearParts::kThreads)
    clear_parts(uint64_t* parts, int64_t count, int64_t* num_batches_tracked) {
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const begin = int64_t(blockIdx.x) * ClearParts::kThreads * ClearParts::kOfThread;
#pragma unroll
  for (int i = 0; i < ClearParts::kOfThread; ++i) {
    int64_t const at = begin + i * ClearParts::kThreads + threadIdx.x;
    if (at < count) parts[at] = PartStatistics::kMissing;
  }
  if (num_batches_tracked != nullptr && blockIdx.x + threadIdx.x == 0) ++*num_batches_tracked;
}

}  // namespace cutlass_fused
