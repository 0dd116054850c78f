// Runs src/kernels/softmax_gradient.cu on the host: a thread for each of a block's, one block after
// the other but for those that are together. Of each line
//   <type> <aligned> <most blocks together; 0: a GPU without clusters> <m> <n> <grad_y> <y>
// it prints what is written.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "emulated_blocks.hpp"

// What reduce_row.cuh has for others.
inline unsigned __reduce_add_sync(unsigned, unsigned value) { return value; }
inline int __reduce_max_sync(unsigned, int value) { return value; }
inline int __float_as_int(float) { return 0; }
inline float __int_as_float(int) { return 0; }

extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
static int most_together;  // blocks
template <class... Params>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Params...),
                               Params... params) {
  unsigned const count = config->blockDim.x * config->blockDim.y;
  if (count % 32 != 0 || count > 1024) return cudaErrorInvalidConfiguration;
  int together = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    cudaLaunchAttribute const& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) together = attribute.val.clusterDim.x;
  }
  if (together > most_together) return cudaErrorInvalidClusterSize;
  run_blocks(config->gridDim, config->blockDim, together, [&] { kernel(params...); });
  return cudaSuccess;
}

#define blockDim emulated_block_dim
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
    in >> name >> aligned >> most_together >> m >> n;
    Device device{};
    device.code = most_together > 0 ? 90 : 80;
    most_together = std::max(most_together, 1);
    for (DataType type : kDataTypes) {
      if (name != name_of(type)) continue;
      for_type(type, [&](auto of) {
        using T = Storage<of()>;
        auto grad_y = read<T>(in, m * n, aligned), y = read<T>(in, m * n, aligned);
        Memory<T> grad_v(m * n, aligned);
        SoftmaxGradient const gradient{type, m, n, grad_y.data(), y.data(), grad_v.data()};
        Status const status = run_softmax_gradient(gradient, device, nullptr);
        if (status != Status::kSuccess || !grad_v.is_whole()) std::printf("failed ");
        for (int64_t i = 0; i < m * n; ++i) {
          std::printf("%.9g ", double(to_float(grad_v.data()[i])));
        }
      });
    }
  }
}
