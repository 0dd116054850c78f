// Rows of 16-bit numbers as fp32 numbers, which have all of their digits: for a product with a
// weight of fp32.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Numbers from one row of the copy to the next: every row begins at a multiple of 16 bytes.
constexpr int64_t pitch_of_widened(int64_t columns) { return ceil_div(columns, 4) * 4; }

// to[r, c] = from[r, c], whose type is of 16 bits, and whose columns lie side by side. `to` is
// aligned to 16 bytes, its rows lie pitch_of_widened apart, and what pads them is left as it is.
Status run_widen_rows(Matrix const& from, float* to, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
