// The mean and M2 of every feature over the rows of every tile, (tiles, features), in memory: 64
// bits that are written and read at once, so that they can say themselves whether they are there.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cutlass_fused/norm/ranges.hpp"

namespace cutlass_fused {

struct PartStatistics {
  // What memory is filled with in front of a kernel that waits for parts. No mean and M2: a NaN is
  // stored as other bits.
  static constexpr uint64_t kMissing = ~uint64_t(0);

  uint64_t* parts;  // as float2, {mean, M2}
  int64_t features;

  __device__ __forceinline__ void publish(int tile, int feature, float mean, float m2) const {
    constexpr unsigned kNaN = 0x7fc00000u;
    unsigned const low = isnan(mean) ? kNaN : __float_as_uint(mean);
    uint64_t const part = uint64_t(__float_as_uint(m2)) << 32 | low;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at(tile, feature)), "l"(part));
  }
  // What is there now.
  __device__ __forceinline__ uint64_t peek(int tile, int feature) const {
    uint64_t part;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(part) : "l"(at(tile, feature)));
    return part;
  }
  __device__ __forceinline__ static float2 unpack(uint64_t part) {
    return {__uint_as_float(unsigned(part)), __uint_as_float(unsigned(part >> 32))};
  }

 private:
  __device__ __forceinline__ uint64_t* at(int tile, int feature) const {
    return parts + tile * features + feature;
  }
};

}  // namespace cutlass_fused
