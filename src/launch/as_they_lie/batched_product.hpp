// Products of two batches of matrices.
#pragma once

#include "checks/checks.hpp"

namespace cutlass_fused {

// y[b] = x[b] @ weight[b].T, a new contiguous tensor, of x (B, M, K) and weight (B, N, K): checked,
// of one `type`, which is that of y.
Tensor run_batched(char const* op, Tensor const& x, Tensor const& weight, DataType type,
                   Precision precision);

}  // namespace cutlass_fused
