// Rows of 16-bit elements, copied to where they begin at multiples of 16 bytes, or back from there:
// TMA reads and writes no others.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// to[r, c] = from[r, c]; the distances between rows are in elements.
Status run_copy_rows(int64_t rows, int64_t columns, void const* from, int64_t ld_from, void* to,
                     int64_t ld_to, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
