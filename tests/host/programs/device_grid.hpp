// A grid of threads, one after the other, for kernels that are printed.
#pragma once

#include <cstdint>
#include <cstring>

#include "device_functions.hpp"

#define __global__
#define __launch_bounds__(threads)

struct Index {
  unsigned x, y;
};
inline Index blockIdx, threadIdx, blockDim, gridDim;

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

template <class Kernel, class Params>
void run_grid(Kernel kernel, Params const& params, Index grid, Index block) {
  gridDim = grid, blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) {
        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(params);
      }
    }
  }
}
