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

// Blocks run one after the other.
static void __threadfence() {}
template <class Word>
static Word __ldcg(Word const* from) {
  return *from;
}
static unsigned atomicInc(unsigned* number, unsigned most) {
  unsigned const before = *number;
  *number = before >= most ? 0 : before + 1;
  return before;
}

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

// The blocks in their order, or the last of them first.
template <class Call>
void run_in_blocks(Index grid, Index block, bool from_last, Call const& call) {
  gridDim = grid, blockDim = block;
  pthread_barrier_init(&barrier, nullptr, block.x * block.y);
  unsigned const count = grid.x * grid.y;
  for (unsigned i = 0; i < count; ++i) {
    unsigned const at = from_last ? count - 1 - i : i;
    blockIdx = {at % grid.x, at / grid.x};
    std::vector<std::thread> threads;
    for (unsigned y = 0; y < block.y; ++y) {
      for (unsigned x = 0; x < block.x; ++x) {
        threads.emplace_back([&, x, y] {
          threadIdx = {x, y};
          call();
        });
      }
    }
    for (std::thread& each : threads) each.join();
  }
  pthread_barrier_destroy(&barrier);
}

template <class Kernel, class Params>
void run_blocks(Kernel kernel, Params const& params, unsigned blocks, Index block) {
  run_in_blocks({blocks, 1}, block, false, [&] { kernel(params); });
}
