// Products of two batches of matrices.
#pragma once

#include "cutlass_fused/epilogue/add_scaled.hpp"
#include "cutlass_fused/plan/overrides.hpp"
#include "cutlass_fused/plan/plan.hpp"
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

// Makes the problem of one product that of a batch, whose matrices have these strides.
void make_batched(Problem& problem, int64_t batch, int64_t x_stride, int64_t weight_stride);

// What takes a batch. The same arguments give the same, which is kept: no tail changes it.
ProductPlan const& find_batched_plan(Problem const& problem, Device const& device,
                                     Struck struck = {});

}  // namespace cutlass_fused
