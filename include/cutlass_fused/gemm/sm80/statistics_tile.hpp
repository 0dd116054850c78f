// Which SM80 tile finds the statistics of a batch norm in training. Plain host integers.
#pragma once

#include "cutlass_fused/gemm/batch_norm.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// What a pass over z costs, for an A100: three quarters of the bandwidth in its data sheet. No time
// was taken on one.
inline int64_t cost_of_pass_sm80(Problem const& problem) {
  constexpr int64_t kLaunchNs = 4000, kBytesPerUs = 1500000;
  return kLaunchNs + problem.y_bytes() * 1000 / kBytesPerUs;
}

// The index of the SM80 tile that finds the statistics of its result, in place of the product that
// was chosen; or -1, if z is to be read again, as where newer kernels run: there a batch norm of
// its own behind the same tile took 96 to 100% of the time (H200, models 33 and 39). A tile that
// was forced, or tuned to, stays the same. Of the others the one that is cheapest together with the
// passes behind it.
inline int choose_statistics_tile_sm80(ProductPlan const& product, Problem const& problem,
                                       Device const& device, Overrides const& overrides) {
  if (product.by != ProductBy::kTile || product.arch != ArchId::kSm80) return -1;
  TilesOfMathSm80 const tiles = tiles_sm80(problem.math);
  auto const can = [&](int tile) {
    return can_find_statistics(tiles.shapes[tile].schedule, tiles.shapes[tile].m);
  };
  if (overrides.forced != nullptr) return can(product.tile) ? product.tile : -1;
  if (device.code >= 90 || problem.y_bytes() < kLeastBytesOfZ) return -1;
  ArchSpec const& arch = spec_sm80();
  if (product.tile != choose_cheapest(arch, problem, device).tile) {
    return can(product.tile) ? product.tile : -1;
  }
  int best = -1;
  int64_t best_cost =
      tile_cost(tiles.shapes[product.tile], problem, device) + cost_of_pass_sm80(problem);
  for (int i = 0; i < tiles.count; ++i) {
    if (!can(i) || !arch.serves(i, problem, device)) continue;
    int64_t const cost = tile_cost(tiles.shapes[i], problem, device);
    if (cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace cutlass_fused
