// THE table of ArchSpecs.
#pragma once

#include "cutlass_fused/gemm/sm80/spec.hpp"
#include "cutlass_fused/gemm/sm90/spec.hpp"

namespace cutlass_fused {

inline ArchSpec const& spec_of(ArchId arch) {
  switch (arch) {
    case ArchId::kSm80:
      break;
    case ArchId::kSm90:
      return spec_sm90();
  }
  return spec_sm80();
}

// The newest first.
constexpr ArchId kNewestFirst[kArchs] = {ArchId::kSm90, ArchId::kSm80};

}  // namespace cutlass_fused
