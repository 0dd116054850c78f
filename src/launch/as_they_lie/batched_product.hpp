// Products of two batches of matrices.
#pragma once

#include "cutlass_fused/epilogue/add_scaled.hpp"
#include "checks/checks.hpp"

namespace cutlass_fused {

// y[b] = x[b] @ weight[b].T, a new contiguous tensor, of x (B, M, K) and weight (B, N, K): checked,
// of one `type`, which is that of y.
Tensor run_batched(char const* op, Tensor const& x, Tensor const& weight, DataType type,
                   Precision precision);

// Into y, a contiguous tensor that is not empty; `added`: what AddScaled does behind each product,
// or null. `adds_y`: c is y.
void run_batched_into(char const* op, Tensor const& x, Tensor const& weight, Tensor const& y,
                      DataType type, Precision precision, AddScaled::Args const* added = nullptr,
                      bool adds_y = false);

}  // namespace cutlass_fused
