// Runs the kernels of include/cutlass_fused/gradients/ on the host, a thread for each of a block's,
// and one block after the other but for those that are together. Of each line
//   leaky_relu <type> <aligned> <sms> <m> <n> <factor> <negative factor> <grad_y> <positive>
//   batch_norm <type> <aligned> <sms> <m> <n> <scale is behind> <round vectors> <grad_y> <z> <mean>
//     <rstd> <gamma> <beta> <scale>
//   plan <type> <aligned> <sms> <m> <bytes of a row> <has clusters>
// it prints what they write, in the order of gradients/*.hpp.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "emulated_blocks.hpp"
//
#include "cutlass_fused/gradients/batch_norm_on_chip.cuh"
#include "cutlass_fused/gradients/leaky_relu.cuh"

using namespace cutlass_fused;
using Block = GradientBlock;

template <class Kernel>
void run(dim3 grid, Kernel const& kernel) {
  run_blocks(grid, dim3(Block::kLanes, Block::kLines), 1, kernel);
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
                    OnChipGradient on_chip) {
  using T = Storage<kType>;
  bool is_behind, rounds_vectors;
  in >> is_behind >> rounds_vectors;
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
                                  is_behind ? grad_scale.data() : nullptr,
                                  rounds_vectors ? kType : DataType::kFloat32};
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
  if (on_chip.lanes > 0) {
    on_chip.rows = ceil_div(m, int64_t(on_chip.blocks));
    OnChipGradientParams<T> const of_chip{
        m, n, grad_y.data(), z.data(), mean.data(), grad_z.data(), on_chip.rows, finish};
    auto const run_on_chip = [&](auto lanes) {
      using OnChip = OnChipGradientBlock<T, lanes()>;
      static OnChipGradientShared<OnChip> shared;
      std::vector<std::vector<uint4>> kept(
          on_chip.blocks, std::vector<uint4>(on_chip.kept_bytes() / sizeof(uint4)));
      dim3 const blocks(unsigned(ceil_div(n, int64_t(OnChip::kColumns)) * on_chip.blocks));
      run_blocks(blocks, dim3(OnChip::kThreads), on_chip.blocks, [&] {
        BlocksTogether const together;
        differentiate_on_chip<T, lanes()>(of_chip, together, together.own(shared),
                                          kept[together.rank].data());
      });
    };
    using std::integral_constant;
    on_chip.lanes == OnChipGradient::kWide
        ? run_on_chip(integral_constant<int, OnChipGradient::kWide>{})
        : run_on_chip(integral_constant<int, OnChipGradient::kNarrow>{});
  } else {
    run(grid, [&] { add_up_batch_norm_gradient<T, kAligned>(params); });
    run(find_columns(n), [&] { join_batch_norm_gradient(join); });
    run(grid, [&] { apply_batch_norm_gradient<T, kAligned>(params); });
  }
  print(grad_z.data(), m * n);
  for (std::vector<float> const& vector : {grad_gamma, grad_beta}) {
    rounds_vectors ? print(reinterpret_cast<T const*>(vector.data()), n) : print(vector.data(), n);
  }
  print(grad_scale.data(), n);
}

void print_plan(std::istream& in, int64_t m, int64_t row_bytes, Device device) {
  bool has_clusters;
  in >> has_clusters;
  device.code = has_clusters ? 90 : 80;
  device.shared_memory = 227 << 10;
  OnChipGradient const plan = OnChipGradient::make(m, row_bytes, device);
  std::printf("%d %d %lld %lld", plan.lanes, plan.blocks, (long long)plan.rows,
              plan.lanes == 0 ? 0LL : (long long)plan.kept_bytes());
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
    if (kernel == "plan") print_plan(in, m, n, device);
    for (DataType type : kDataTypes) {
      if (name != name_of(type) || kernel == "plan") continue;
      // "batch_norm_8_2": on chip, by so many threads side by side, and so many blocks together.
      OnChipGradient on_chip;
      std::sscanf(kernel.c_str(), "batch_norm_%d_%d", &on_chip.lanes, &on_chip.blocks);
      GradientStrips const strips = GradientStrips::make(m, n, type, device);
      for_type(type, [&](auto of) {
        auto const call = [&](auto is_aligned) {
          constexpr bool kAligned = decltype(is_aligned)::value;
          kernel == "leaky_relu" ? run_leaky_relu<of(), kAligned>(in, strips, m, n)
                                 : run_batch_norm<of(), kAligned>(in, strips, m, n, on_chip);
        };
        aligned ? call(std::true_type{}) : call(std::false_type{});
      });
    }
  }
}
