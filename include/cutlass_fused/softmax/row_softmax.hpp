// Declarations only: row softmax, for ops.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/norm/normalization.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Both take x of the type kIn and write y, a contiguous matrix of as many rows and columns. Its
// type is kIn or one wider or narrower, that is fp32 for 16 bits and either 16-bit type for fp32.
// It may be x itself, if that is contiguous and of y's type.

// y[m, :] = softmax(x[m, :] * scale), of which element 0 is read
template <DataType kIn>
Status run_row_softmax(Matrix const& x, Vector const& scale, void* y, DataType y_type,
                       Device const& device, cudaStream_t stream);

// y[m, :] = softmax(((x[m, :] - mean) * a + d) * scale). `scratch` is contiguous, of x's size and
// type; it may be x or y.
template <DataType kIn>
Status run_normalized_row_softmax(Matrix const& x, ScaledNormalization const& map, void* scratch,
                                  void* y, DataType y_type, BehindKernel behind,
                                  Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
