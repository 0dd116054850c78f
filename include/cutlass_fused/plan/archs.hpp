// THE table of ArchSpecs, one for each row of common/arch.hpp.
#pragma once

#include <array>

#include "cutlass_fused/gemm/sm100/spec.hpp"
#include "cutlass_fused/gemm/sm80/spec.hpp"
#include "cutlass_fused/gemm/sm90/spec.hpp"

namespace cutlass_fused {

inline ArchSpec const& spec_of(ArchId arch) {
  switch (arch) {
    case ArchId::kSm80:
      break;
    case ArchId::kSm90:
      return spec_sm90();
    case ArchId::kSm100:
      return spec_sm100();
  }
  return spec_sm80();
}

constexpr std::array<ArchId, kArchs> kNewestFirst = [] {
  std::array<ArchId, kArchs> archs{};
  for (int i = 0; i < kArchs; ++i) archs[i] = kArchRows[kArchs - 1 - i].id;
  return archs;
}();

}  // namespace cutlass_fused
