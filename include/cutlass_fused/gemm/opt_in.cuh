// Shared memory beyond what every kernel may have.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Once per kernel and GPU: opt in to so much shared memory, of which `devices` keeps account. False
// on a CUDA error.
template <class... Params>
bool opt_in_to_shared_memory(void (*kernel)(Params...), int bytes, Device const& device,
                             std::atomic<uint64_t>& devices) {
  uint64_t const bit = device.index < 64 ? uint64_t(1) << device.index : 0;
  if (devices.load(std::memory_order_relaxed) & bit) return true;
  if (cudaFuncSetAttribute(reinterpret_cast<void const*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) {
    return false;
  }
  devices.fetch_or(bit, std::memory_order_relaxed);
  return true;
}

}  // namespace cutlass_fused
