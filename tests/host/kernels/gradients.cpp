// Runs the kernels of include/cutlass_fused/gradients/ on the host, a thread for each of a block's,
// and one block after the other. Of each line
//   leaky_relu <type> <aligned> <sms> <m> <n> <factor> <negative factor> <grad_y> <positive>
//   batch_norm <type> <aligned> <sms> <m> <n> <scale is behind> <grad_y> <z> <mean> <rstd> <gamma>
//     <beta> <scale>
// it prints what they write, in the order of gradients/*.hpp.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

// What the GPU has of these.
static thread_local uint3 emulated_thread, emulated_block;
static pthread_barrier_t emulated_barrier;
#define threadIdx emulated_thread
#define blockIdx emulated_block
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
static void __syncthreads() { pthread_barrier_wait(&emulated_barrier); }
template <class T>
static T __ldcs(T const* from) {
  return *from;
}

#include "cutlass_fused/gradients/batch_norm_on_chip.cuh"
#include "cutlass_fused/gradients/leaky_relu.cuh"

using namespace cutlass_fused;
using Block = GradientBlock;

template <class Kernel>
void run(dim3 grid, Kernel const& kernel, unsigned lanes = Block::kLanes) {
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      pthread_barrier_init(&emulated_barrier, nullptr, Block::kThreads);
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < unsigned(Block::kThreads); ++i) {
        threads.emplace_back([&, i] {
          emulated_thread = {i % lanes, i / lanes, 0};
          emulated_block = {x, y, 0};
          kernel();
        });
      }
      for (std::thread& thread : threads) thread.join();
      pthread_barrier_destroy(&emulated_barrier);
    }
  }
}

// A matrix whose first number is at a multiple of 16 bytes, or one number behind.
template <class T>
class Memory {
 public:
  Memory(int64_t count, bool aligned) : bytes_((count + 1) * sizeof(T) + 16), aligned_(aligned) {}
  T* data() {
    uintptr_t const first = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>((first + 15) / 16 * 16) + (aligned_ ? 0 : 1);
  }

 private:
  std::vector<char> bytes_;
  bool aligned_;
};

template <class T>
Memory<T> read(std::istream& in, int64_t count, bool aligned) {
  Memory<T> memory(count, aligned);
  for (int64_t i = 0; i < count; ++i) {
    float number;
    in >> number;
    memory.data()[i] = T(number);
  }
  return memory;
}

template <class T>
void print(T const* numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::printf("%.9g ", double(to_float(numbers[i])));
}

dim3 find_columns(int64_t n) { return dim3(unsigned(ceil_div(n, int64_t(Block::kLanes)))); }

template <DataType kType, bool kAligned>
void run_leaky_relu(std::istream& in, GradientStrips const& strips, int64_t m, int64_t n) {
  using T = Storage<kType>;
  float factor, negative_factor;
  in >> factor >> negative_factor;
  auto grad_y = read<T>(in, m * n, kAligned);
  Memory<bool> positive(m * n, kAligned);
  for (int64_t i = 0; i < m * n; ++i) in >> positive.data()[i];
  Memory<T> grad_z(m * n, kAligned);
  std::vector<float> strip_sums(strips.count * n, -1), sums(n, -1);
  LeakyReLUGradientParams<T> const params{m,
                                          n,
                                          grad_y.data(),
                                          positive.data(),
                                          grad_z.data(),
                                          strip_sums.data(),
                                          factor,
                                          negative_factor,
                                          strips.rows};
  dim3 const grid(unsigned(ceil_div(n, int64_t(Block::columns(kType)))), unsigned(strips.count));
  run(grid, [&] { leaky_relu_gradient<T, kAligned>(params); });
  run(find_columns(n),
      [&] { join_column_sums(strip_sums.data(), sums.data(), n, int(strips.count)); });
  print(grad_z.data(), m * n);
  print(sums.data(), n);
}

template <DataType kType, bool kAligned>
void run_batch_norm(std::istream& in, GradientStrips const& strips, int64_t m, int64_t n,
                    int lanes) {
  using T = Storage<kType>;
  bool is_behind;
  in >> is_behind;
  auto grad_y = read<T>(in, m * n, kAligned), z = read<T>(in, m * n, kAligned);
  auto mean = read<float>(in, n, true), rstd = read<float>(in, n, true);
  auto gamma = read<float>(in, n, true), beta = read<float>(in, n, true);
  auto scale = read<float>(in, n, true);
  auto const view = [](Memory<float>& vector) {
    return Vector{vector.data(), 1, DataType::kFloat32, 0.0f};
  };
  Memory<T> grad_z(m * n, kAligned);
  std::vector<float> sums(strips.count * n, -1), products(strips.count * n, -1);
  std::vector<float> grad_gamma(n, -1), grad_beta(n, -1), grad_scale(n, -1);
  std::vector<float> of_grad(n), of_z(n), constant(n);
  BatchNormGradientParams<T> const params{m,
                                          n,
                                          grad_y.data(),
                                          z.data(),
                                          mean.data(),
                                          grad_z.data(),
                                          sums.data(),
                                          products.data(),
                                          of_grad.data(),
                                          of_z.data(),
                                          constant.data(),
                                          strips.rows};
  FinishColumnParams const finish{rstd.data(),
                                  view(gamma),
                                  view(beta),
                                  view(scale),
                                  grad_gamma.data(),
                                  grad_beta.data(),
                                  is_behind ? grad_scale.data() : nullptr};
  JoinBatchNormGradientParams const join{m,
                                         n,
                                         int(strips.count),
                                         sums.data(),
                                         products.data(),
                                         finish,
                                         of_grad.data(),
                                         of_z.data(),
                                         constant.data()};
  dim3 const grid(unsigned(ceil_div(n, int64_t(Block::columns(kType)))), unsigned(strips.count));
  if (lanes > 0) {
    OnChipGradientParams<T> const on_chip{m,
                                          n,
                                          grad_y.data(),
                                          z.data(),
                                          mean.data(),
                                          grad_z.data(),
                                          ceil_div(m, int64_t(OnChipGradient::kThreads / lanes)),
                                          finish};
    std::vector<uint4> kept(OnChipGradient::kept_bytes(on_chip.rounds) / sizeof(uint4));
    int64_t const columns = lanes * Block::width(kType);
    run(
        dim3(unsigned(ceil_div(n, columns))),
        [&] {
          lanes == OnChipGradient::kWide
              ? differentiate_on_chip<T, OnChipGradient::kWide>(on_chip, kept.data())
              : differentiate_on_chip<T, OnChipGradient::kNarrow>(on_chip, kept.data());
        },
        unsigned(lanes));
  } else {
    run(grid, [&] { add_up_batch_norm_gradient<T, kAligned>(params); });
    run(find_columns(n), [&] { join_batch_norm_gradient(join); });
    run(grid, [&] { apply_batch_norm_gradient<T, kAligned>(params); });
  }
  print(grad_z.data(), m * n);
  print(grad_gamma.data(), n);
  print(grad_beta.data(), n);
  print(grad_scale.data(), n);
}

int main() {
  for (std::string line; std::getline(std::cin, line); std::printf("\n")) {
    std::istringstream in(line);
    std::string kernel, name;
    bool aligned;
    int64_t sms, m, n;
    in >> kernel >> name >> aligned >> sms >> m >> n;
    Device device{};
    device.sm_count = int(sms);
    for (DataType type : kDataTypes) {
      if (name != name_of(type)) continue;
      // "batch_norm8": on chip, by so many threads side by side.
      int const lanes = kernel.back() == '8' ? 8 : kernel.back() == '4' ? 4 : 0;
      GradientStrips const strips = GradientStrips::make(m, n, type, device);
      for_type(type, [&](auto of) {
        auto const call = [&](auto is_aligned) {
          constexpr bool kAligned = decltype(is_aligned)::value;
          kernel == "leaky_relu" ? run_leaky_relu<of(), kAligned>(in, strips, m, n)
                                 : run_batch_norm<of(), kAligned>(in, strips, m, n, lanes);
        };
        aligned ? call(std::true_type{}) : call(std::false_type{});
      });
    }
  }
}
