// What could serve in place of a plan's tile, whose kernel may be missing.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// The plan with each tile that reads what it copies and splits, and writes what it writes: the
// cheapest first, its own among them. Of these, tiles whose estimate is not to be trusted come
// last.
inline std::vector<Plan> list_with_tiles(Plan const& plan, Problem const& given,
                                         Device const& device) {
  if (plan.product.by != ProductBy::kTile) return {};
  Problem const problem =
      plan.splits ? parts_of(given, plan.along_n) : with_copies(given, plan.copies);
  std::vector<std::pair<int64_t, Plan>> found;
  for (ArchId id : kNewestFirst) {
    ArchSpec const& arch = spec_of(id);
    // An older generation reads other rows, which are not copied for it.
    bool const is_other = id != plan.product.arch;
    if (!device.archs.has(id) || id > plan.product.arch || (is_other && plan.copies.any()))
      continue;
    if (arch.reads(problem) != ReadBy::kTiles) continue;
    for (int tile = 0; tile < arch.count(problem.math); ++tile) {
      if (!arch.serves(tile, problem, device)) continue;
      Estimate const estimate = arch.estimate(tile, problem, device);
      int64_t cost = std::numeric_limits<int64_t>::max();
      if (arch.is_worth_an_estimate(tile, problem, device)) {
        cost = estimate.cost + arch.surcharge(tile, problem, estimate.cost, device);
      }
      Plan other = plan;
      other.product = {ProductBy::kTile, id, tile, estimate.raster};
      found.push_back({cost, other});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](auto const& a, auto const& b) { return a.first < b.first; });
  std::vector<Plan> plans;
  for (auto const& [cost, other] : found) plans.push_back(other);
  return plans;
}

}  // namespace cutlass_fused
