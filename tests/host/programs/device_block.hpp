// A block of threads, each a thread of the host, for printed kernels whose threads wait for each
// other. Nothing here has a name that the shim of other kernels shares in a process.
#pragma once

#include <pthread.h>

#include <thread>
#include <vector>

#include "device_functions.hpp"

#define __global__
#define __shared__ static
#define __launch_bounds__(threads)

struct Index {
  unsigned x, y;
};
static thread_local Index threadIdx;
static Index blockIdx, blockDim, gridDim;
static pthread_barrier_t barrier;
static float exchanged[1024];

static void __syncthreads() { pthread_barrier_wait(&barrier); }

static float __shfl_xor_sync(unsigned, float value, int step) {
  unsigned const place = threadIdx.y * blockDim.x + threadIdx.x;
  exchanged[place] = value;
  __syncthreads();
  float const other = exchanged[place ^ static_cast<unsigned>(step)];
  __syncthreads();
  return other;
}

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

template <class Kernel, class Params>
void run_blocks(Kernel kernel, Params const& params, unsigned blocks, Index block) {
  gridDim = {blocks, 1}, blockDim = block;
  pthread_barrier_init(&barrier, nullptr, block.x * block.y);
  for (blockIdx = {0, 0}; blockIdx.x < blocks; ++blockIdx.x) {
    std::vector<std::thread> threads;
    for (unsigned y = 0; y < block.y; ++y) {
      for (unsigned x = 0; x < block.x; ++x) {
        threads.emplace_back([&, x, y] {
          threadIdx = {x, y};
          kernel(params);
        });
      }
    }
    for (std::thread& each : threads) each.join();
  }
  pthread_barrier_destroy(&barrier);
}
