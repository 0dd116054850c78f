// The product of a plan, and the copies beside it.
#pragma once

#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// The problem as it lies behind these copies.
inline Problem with_copies(Problem problem, Copies const& copies) {
  int64_t const whole = 16 / problem.operand_bytes();
  auto const align = [&](int64_t columns) { return Rows{ceil_div(columns, whole) * whole}; };
  if (copies.x) problem.x = align(problem.k);
  if (copies.weight) problem.weight = align(problem.k);
  if (copies.y) problem.y = align(problem.n);
  return problem;
}

// By a generation that copies what its kernels cannot read, so that they serve; false: none does.
inline bool plan_copies(Plan& plan, Problem const& problem, Device const& device,
                        Overrides const& overrides) {
  if (overrides.struck.has(Part::kCopies)) return false;
  for (ArchId id : kNewestFirst) {
    ArchSpec const& arch = spec_of(id);
    if (!device.archs.has(id) || arch.choose_copies == nullptr) continue;
    Copies copies = arch.choose_copies(problem);
    if (!copies.any()) continue;
    Problem const copied = with_copies(problem, copies);
    ProductPlan const product = choose_product(copied, device, overrides, copies.operands());
    bool const has_tile = product.by == ProductBy::kTile;
    if (product.arch != id || (!has_tile && product.by != ProductBy::kUnknownTile)) continue;
    if (has_tile && arch.writes_any_rows(problem.math, product.tile)) copies.y = false;
    plan.copies = copies;
    plan.product = product;
    return true;
  }
  return false;
}

inline void plan_product(Plan& plan, Problem const& problem, Device const& device,
                         Overrides const& overrides) {
  if (!plan_copies(plan, problem, device, overrides)) {
    plan.product = choose_product(problem, device, overrides);
  }
}

}  // namespace cutlass_fused
