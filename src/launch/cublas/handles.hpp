// PyTorch creates a cuBLAS handle per thread and GPU at the first product, which a CUDA graph
// cannot capture.
#pragma once

#include <cstdint>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A bit for each GPU on which this thread computed a product, and none for those beyond.
inline thread_local uint64_t gpus_with_cublas = 0;
inline uint64_t gpu_bit(Device const& device) {
  return device.index < 64 ? uint64_t(1) << device.index : 0;
}
inline bool cublas_was_called(Device const& device) {
  return (gpus_with_cublas & gpu_bit(device)) != 0;
}
inline void remember_cublas(Device const& device) { gpus_with_cublas |= gpu_bit(device); }

}  // namespace cutlass_fused
