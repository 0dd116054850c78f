// Reads that are asked for before they are needed.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Brings element i into L2, if it is in memory. A hint: it may also stand in front of
// wait_for_previous_kernel().
__device__ __forceinline__ void prefetch(Vector const& vector, int64_t i) {
  if (vector.data == nullptr) return;
  char const* const element =
      static_cast<char const*>(vector.data) + i * vector.stride * size_of(vector.type);
  asm volatile("prefetch.global.L2 [%0];" ::"l"(element));
}

}  // namespace cutlass_fused
