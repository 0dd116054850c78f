// CUTLASS_FUSED_LOG=1: a line on stderr for every product, with the plan that serves it.
#pragma once

#include "cutlass_fused/plan/describe.hpp"
#include "launch/product.hpp"

namespace cutlass_fused {

bool logs_plans();
// `math`: what is multiplied, where the plan does not say it.
void write_plan(Product const& product, Plan const& plan, char const* math);

inline void log_plan(Product const& product, Plan const& plan, char const* math = nullptr) {
  if (logs_plans()) write_plan(product, plan, math);
}

}  // namespace cutlass_fused
