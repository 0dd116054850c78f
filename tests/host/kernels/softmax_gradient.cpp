// Runs src/kernels/softmax_gradient.cu on the host: a thread for each of a block's, one block after
// the other. Of each line
//   <type> <aligned> <m> <n> <grad_y> <y>
// it prints what is written.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// What the GPU has of these.
static thread_local uint3 emulated_thread;
static uint3 emulated_block;
static dim3 emulated_block_dim;
static pthread_barrier_t emulated_barrier, emulated_warps[32];
static float emulated_lanes[1024];
inline void __syncthreads() { pthread_barrier_wait(&emulated_barrier); }
inline float __shfl_xor_sync(unsigned, float value, int distance) {
  unsigned const thread = emulated_thread.y * emulated_block_dim.x + emulated_thread.x;
  pthread_barrier_t* const warp = &emulated_warps[thread / 32];
  emulated_lanes[thread] = value;
  pthread_barrier_wait(warp);
  float const other = emulated_lanes[thread ^ unsigned(distance)];
  pthread_barrier_wait(warp);
  return other;
}
// What reduce_row.cuh has for others.
inline unsigned __reduce_add_sync(unsigned, unsigned value) { return value; }
inline int __reduce_max_sync(unsigned, int value) { return value; }
inline int __float_as_int(float) { return 0; }
inline float __int_as_float(int) { return 0; }

template <class... Params>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Params...),
                               Params... params) {
  dim3 const block = emulated_block_dim = config->blockDim;
  unsigned const count = block.x * block.y;
  if (count % 32 != 0 || count > 1024) return cudaErrorInvalidConfiguration;
  for (unsigned x = 0; x < config->gridDim.x; ++x) {
    emulated_block = {x, 0, 0};
    pthread_barrier_init(&emulated_barrier, nullptr, count);
    for (pthread_barrier_t& warp : emulated_warps) pthread_barrier_init(&warp, nullptr, 32);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        emulated_thread = {i % block.x, i / block.x, 0};
        kernel(params...);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (pthread_barrier_t& warp : emulated_warps) pthread_barrier_destroy(&warp);
    pthread_barrier_destroy(&emulated_barrier);
  }
  return cudaSuccess;
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
#include "../../../src/kernels/softmax_gradient.cu"

using namespace cutlass_fused;

// Numbers of which the first is at a multiple of 16 bytes, or one number behind, between some that
// must stay.
template <class T>
class Memory {
 public:
  Memory(int64_t count, bool aligned)
      : count_(count), bytes_((count + 2) * sizeof(T) + 32, kFill), aligned_(aligned) {}
  T* data() {
    uintptr_t const first = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>((first + 15) / 16 * 16) + (aligned_ ? 0 : 1);
  }
  bool is_whole() {
    char* const end = reinterpret_cast<char*>(data() + count_);
    bool whole = true;
    for (char* byte = bytes_.data(); byte < bytes_.data() + bytes_.size(); ++byte) {
      if (byte < reinterpret_cast<char*>(data()) || byte >= end) whole = whole && *byte == kFill;
    }
    return whole;
  }

 private:
  static constexpr char kFill = 0x7f;
  int64_t count_;
  std::vector<char> bytes_;
  bool aligned_;
};

template <class T>
Memory<T> read(std::istream& in, int64_t count, bool aligned) {
  Memory<T> memory(count, aligned);
  for (int64_t i = 0; i < count; ++i) {
    std::string number;
    in >> number;
    memory.data()[i] = T(std::stof(number));
  }
  return memory;
}

int main() {
  for (std::string line; std::getline(std::cin, line); std::printf("\n")) {
    std::istringstream in(line);
    std::string name;
    bool aligned;
    int64_t m, n;
    in >> name >> aligned >> m >> n;
    for (DataType type : kDataTypes) {
      if (name != name_of(type)) continue;
      for_type(type, [&](auto of) {
        using T = Storage<of()>;
        auto grad_y = read<T>(in, m * n, aligned), y = read<T>(in, m * n, aligned);
        Memory<T> grad_v(m * n, aligned);
        SoftmaxGradient const gradient{type, m, n, grad_y.data(), y.data(), grad_v.data()};
        Status const status = run_softmax_gradient(gradient, Device{}, nullptr);
        if (status != Status::kSuccess || !grad_v.is_whole()) std::printf("failed ");
        for (int64_t i = 0; i < m * n; ++i) {
          std::printf("%.9g ", double(to_float(grad_v.data()[i])));
        }
      });
    }
  }
}
