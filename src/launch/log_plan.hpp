// CUTLASS_FUSED_LOG=1: a line on stderr for every product, with the plan that serves it.
#pragma once

#include "cutlass_fused/plan/describe.hpp"
#include "launch/product.hpp"

namespace cutlass_fused {

bool logs_plans();
void write_plan(Product const& product, Plan const& plan);

inline void log_plan(Product const& product, Plan const& plan) {
  if (logs_plans()) write_plan(product, plan);
}

}  // namespace cutlass_fused
