// Reads lines "<math> <m> <n> <k> <keep_z> <code> <SMs>" and prints, for each, which kernel finds
// the statistics of a batch norm in training behind the product of dense matrices; "strips": the
// product, in front of a kernel that normalizes while it runs; "<tile>", that of an SM80 product.
#include <iostream>
#include <string>

#include "cutlass_fused/plan/describe.hpp"
#include "cutlass_fused/plan/make_plan.hpp"

using namespace cutlass_fused;

std::string choose(Problem const& problem, bool keep_z, Device const& device) {
  Tail tail{Tail::kBatchNorm};
  tail.keeps_z = keep_z;
  tail.has_centre = true;
  Plan const plan = make_plan(problem, tail, device, {});
  switch (plan.norm) {
    case NormBy::kGroup:
      return "group";
    case NormBy::kStrips:
      return "strips";
    case NormBy::kProductStatistics:
      return plan.product.arch == ArchId::kSm80 ? describe_kernel(plan.product, problem.math)
                                                : "statistics";
    case NormBy::kNone:
    case NormBy::kColumns:
    case NormBy::kOnChip:
      break;
  }
  return "separate";
}

int main() {
  std::string name;
  int64_t m, n, k;
  Device device{};
  device.shared_memory = 163 * 1024;  // of an A100
  bool keep_z;
  while (std::cin >> name >> m >> n >> k >> keep_z >> device.code >> device.sm_count) {
    device.archs = ArchSet().with(ArchId::kSm80);
    if (device.code == 90) device.archs = device.archs.with(ArchId::kSm90);
    MathId const math = name == "Fp16x3"   ? MathId::kFp16x3
                        : name == "Fp16x1" ? MathId::kFp16x1
                        : name == "F16"    ? MathId::kF16
                                           : MathId::kBf16;
    std::cout << choose({math, m, n, k, spec_of(math).type, {k}, {k}, {n}}, keep_z, device)
              << std::endl;
  }
}
