// GPUs that are not there, for which programs are linked ahead of time.
#pragma once

#include <vector>

#include "checks/device.hpp"

namespace cutlass_fused {

// Those of a compute capability that are common, by all that plans depend on; none is known of
// some.
inline std::vector<Device> list_typical_gpus(int compute_capability) {
  struct Gpu {
    int compute_capability, sm_count, shared_memory, memory_gb_s;
  };
  constexpr int kSmall = 101376, kOf80 = 166912, kLarge = 232448;
  constexpr Gpu kGpus[] = {
      {80, 108, kOf80, 1555},    // A100 of 40 GB
      {80, 108, kOf80, 2039},    // A100 of 80 GB
      {86, 72, kSmall, 600},     // A10
      {86, 82, kSmall, 936},     // RTX 3090
      {86, 84, kSmall, 696},     // A40
      {89, 128, kSmall, 1008},   // RTX 4090
      {89, 142, kSmall, 864},    // L40S
      {90, 114, kLarge, 2039},   // H100 PCIe
      {90, 132, kLarge, 3352},   // H100 SXM
      {90, 132, kLarge, 4916},   // H200
      {100, 148, kLarge, 8000},  // B200
      {120, 170, kSmall, 1792},  // RTX 5090
  };
  std::vector<Device> found;
  for (Gpu const& gpu : kGpus) {
    if (gpu.compute_capability != compute_capability) continue;
    found.push_back({0, gpu.sm_count, gpu.shared_memory, compute_capability,
                     code_for(compute_capability), archs_for(compute_capability), gpu.memory_gb_s});
  }
  return found;
}

}  // namespace cutlass_fused
