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

}  // namespace cutlass_fused
