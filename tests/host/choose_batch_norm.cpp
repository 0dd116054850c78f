// Reads lines "<math> <m> <n> <k> <keep_z> <code> <SMs>" and prints, for each, which kernel finds
// the statistics of a batch norm in training behind the product of dense matrices.
#include <iostream>
#include <string>

#include "cutlass_fused/gemm/choice_batch_norm_sm90.hpp"

using namespace cutlass_fused;

template <class Math>
BatchNormKernel choose(GemmArgs gemm, bool keep_z, Device const& device) {
  // Split rows lie in a layout of their own, aligned whatever K is.
  gemm.ldx = gemm.ldw = multiplied_k<Math>(gemm.k);
  gemm.y_type = Math::kOut;
  return choose_batch_norm_kernel<Math>(gemm, keep_z, device);
}

int main() {
  std::string math;
  GemmArgs gemm{};
  Device device{};
  bool keep_z;
  while (std::cin >> math >> gemm.m >> gemm.n >> gemm.k >> keep_z >> device.code >>
         device.sm_count) {
    gemm.ldy = gemm.n;
    auto const kernel = math == "Fp16x3"   ? choose<Fp16x3>(gemm, keep_z, device)
                        : math == "Fp16x1" ? choose<Fp16x1>(gemm, keep_z, device)
                        : math == "F16"    ? choose<F16>(gemm, keep_z, device)
                                           : choose<Bf16>(gemm, keep_z, device);
    constexpr char const* kNames[] = {"separate", "statistics", "group"};
    std::cout << kNames[static_cast<int>(kernel)] << std::endl;
  }
}
