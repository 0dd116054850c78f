// One element of any type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

__device__ __forceinline__ void store_from_float(void* data, int64_t offset, DataType type,
                                                 float value) {
  static_assert(kDataTypeCount == 3);  // another one has a case of its own
  switch (type) {
    case DataType::kFloat16:
      static_cast<__half*>(data)[offset] = __float2half_rn(value);
      break;
    case DataType::kBFloat16:
      static_cast<__nv_bfloat16*>(data)[offset] = __float2bfloat16_rn(value);
      break;
    default:
      static_cast<float*>(data)[offset] = value;
  }
}

// 8 or 16 bytes at a multiple of as many. Spelt out, because the compiler makes a store of each
// word of most assignments of a uint4 or uint2.
__device__ __forceinline__ void store_packed(void* to, uint4 const& piece) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w)
               : "memory");
#else  // tests run kernels on the host
  *static_cast<uint4*>(to) = piece;
#endif
}
__device__ __forceinline__ void store_packed(void* to, uint2 const& piece) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(piece.x),
               "r"(piece.y)
               : "memory");
#else
  *static_cast<uint2*>(to) = piece;
#endif
}

}  // namespace cutlass_fused
