// CUTLASS_FUSED_LOG=1: a line on stderr for every product, with the kernel that serves it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

inline bool logs_choices() {
  static bool const enabled = [] {
    char const* value = std::getenv("CUTLASS_FUSED_LOG");
    return value != nullptr && value[0] != '\0' && value[0] != '0';
  }();
  return enabled;
}

template <class Math>
void log_choice(char const* arch, char const* epilogue, GemmArgs const& gemm,
                std::string const& kernel) {
  std::fprintf(stderr, "cutlass_fused: %s %s %s M=%lld N=%lld K=%lld: %s\n", arch, Math::kName,
               epilogue, static_cast<long long>(gemm.m), static_cast<long long>(gemm.n),
               static_cast<long long>(gemm.k), kernel.c_str());
}

}  // namespace cutlass_fused
