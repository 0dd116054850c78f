// What kernels have of their blocks on a GPU, for a host: a thread for each of a block's. Blocks
// that are together run at the same time, all others one after the other.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

struct EmulatedBlock {
  pthread_barrier_t threads, warps[32];
  float lanes[1024];
};

static thread_local uint3 emulated_thread, emulated_block;
static thread_local EmulatedBlock* emulated_own;
static thread_local int emulated_rank;
static thread_local size_t
    emulated_stride;  // from what own() gives to one block to that of the next
static dim3 emulated_block_dim;
static int emulated_count;
static pthread_barrier_t emulated_cluster;

inline void __syncthreads() { pthread_barrier_wait(&emulated_own->threads); }
inline float __shfl_xor_sync(unsigned, float value, int distance) {
  unsigned const thread = emulated_thread.y * emulated_block_dim.x + emulated_thread.x;
  pthread_barrier_t* const warp = &emulated_own->warps[thread / 32];
  emulated_own->lanes[thread] = value;
  pthread_barrier_wait(warp);
  float const other = emulated_own->lanes[thread ^ unsigned(distance)];
  pthread_barrier_wait(warp);
  return other;
}
template <class T>
T __ldcs(T const* from) {
  return *from;
}
using std::max;
using std::min;

template <class Kernel>
void run_blocks(dim3 grid, dim3 block, int together, Kernel const& kernel) {
  emulated_block_dim = block;
  emulated_count = together;
  unsigned const count = block.x * block.y;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; x += unsigned(together)) {
      std::vector<EmulatedBlock> blocks(together);
      pthread_barrier_init(&emulated_cluster, nullptr, count * unsigned(together));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < together; ++rank) {
        EmulatedBlock* const own = &blocks[rank];
        pthread_barrier_init(&own->threads, nullptr, count);
        for (pthread_barrier_t& warp : own->warps) pthread_barrier_init(&warp, nullptr, 32);
        for (unsigned i = 0; i < count; ++i) {
          threads.emplace_back([&, own, rank, i, x, y] {
            emulated_thread = {i % block.x, i / block.x, 0};
            emulated_block = {x + unsigned(rank), y, 0};
            emulated_own = own;
            emulated_rank = rank;
            kernel();
          });
        }
      }
      for (std::thread& thread : threads) thread.join();
      for (EmulatedBlock& own : blocks) {
        for (pthread_barrier_t& warp : own.warps) pthread_barrier_destroy(&warp);
        pthread_barrier_destroy(&own.threads);
      }
      pthread_barrier_destroy(&emulated_cluster);
    }
  }
}

#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_dim
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

namespace cutlass_fused {

// As in gradients/blocks_together.cuh. What is declared as shared is static here, and one for all
// blocks: each has a copy of it.
struct BlocksTogether {
  static constexpr int kMost = 8;
  int count = emulated_count, rank = emulated_rank;

  template <class T>
  T& own(T&) const {
    static T copies[kMost];
    emulated_stride = sizeof(T);
    return copies[rank];
  }
  float read(float const& shared, int block) const {
    auto const own = reinterpret_cast<char const*>(&shared);
    return *reinterpret_cast<float const*>(own + (block - rank) * int64_t(emulated_stride));
  }
  void meet() const { pthread_barrier_wait(&emulated_cluster); }
  void say_that_it_has_read() const {}
  void wait_for_readers() const { pthread_barrier_wait(&emulated_cluster); }
};

}  // namespace cutlass_fused
