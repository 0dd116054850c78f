// Reads lines "<math> <m> <n> <k> <keep_z> <code> <SMs>" and prints, for each, which kernel finds
// the statistics of a batch norm in training behind the product of dense matrices; "strips": the
// product, in front of a kernel that normalizes while it runs; "<tile>", that of an SM80 product.
#include <iostream>
#include <string>

#include "cutlass_fused/plan/choice_batch_norm_sm90.hpp"
#include "cutlass_fused/plan/choice_statistics_sm80.hpp"

using namespace cutlass_fused;

template <class Math>
std::string choose_sm80(GemmArgs const& gemm, Device const& device) {
  Choice const choice = choose_kernel_sm80<Math>(gemm, device);
  int const tile = choose_statistics_tile_sm80<Math>(gemm, choice, device);
  return tile < 0 ? "separate" : TilesSm80For<Math>::type::kShapes[tile].name();
}

template <class Math>
std::string choose(GemmArgs gemm, bool keep_z, Device const& device) {
  // Split rows lie in a layout of their own, aligned whatever K is.
  gemm.ldx = gemm.ldw = multiplied_k<Math>(gemm.k);
  gemm.y_type = Math::kOut;
  if (device.code < 90) return choose_sm80<Math>(gemm, device);
  switch (choose_batch_norm_kernel<Math>(gemm, keep_z, device)) {
    case BatchNormKernel::kSeparate:
      return "separate";
    case BatchNormKernel::kGroup:
      return "group";
    default:
      return normalizes_strips(gemm) ? "strips" : "statistics";
  }
}

int main() {
  std::string math;
  GemmArgs gemm{};
  Device device{};
  device.shared_memory = 163 * 1024;  // of an A100
  bool keep_z;
  while (std::cin >> math >> gemm.m >> gemm.n >> gemm.k >> keep_z >> device.code >>
         device.sm_count) {
    gemm.ldy = gemm.n;
    std::cout << (math == "Fp16x3"   ? choose<Fp16x3>(gemm, keep_z, device)
                  : math == "Fp16x1" ? choose<Fp16x1>(gemm, keep_z, device)
                  : math == "F16"    ? choose<F16>(gemm, keep_z, device)
                                     : choose<Bf16>(gemm, keep_z, device))
              << std::endl;
  }
}
