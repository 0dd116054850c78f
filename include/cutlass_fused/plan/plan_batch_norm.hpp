// Who finds the statistics of a batch norm in training, and who normalizes: the product's kernel,
// those behind it, or both. Plain host integers.
#pragma once

#include "cutlass_fused/gemm/batch_norm.hpp"
#include "cutlass_fused/gemm/fp16x3/repair_and_merge.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tiles.hpp"
#include "cutlass_fused/norm/strips.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// What a tile takes beside its mainloop where it finds statistics, and where blocks wait for each
// other too; and what the passes over z cost, of which a microsecond of an H200 reads or writes so
// many bytes.
struct BatchNormCosts {
  static constexpr int64_t kStatisticsNs = 1000, kGroupNs = 4500;
  static constexpr int64_t kPassNs = 4000, kMergeNs = 4000, kBytesPerUs = 3500000;

  static int64_t passes(Problem const& problem, int passes) {
    return kMergeNs + passes * kPassNs + (2 * passes - 1) * problem.y_bytes() * 1000 / kBytesPerUs;
  }
};

// Launches take longer than passes over less.
constexpr int64_t kLeastBytesOfZ = 1 << 20;

// By the estimates, for a matrix that TMA reads, behind SM90 kernels; unless a tile is forced,
// which is one of a product alone: kColumns, kProductStatistics, or kGroup, only if z need not be
// kept.
inline NormBy choose_norm_sm90(Problem const& problem, bool keeps_z, Device const& device,
                               Overrides const& overrides) {
  Struck const struck = overrides.struck;
  if (!device.archs.has(ArchId::kSm90) || overrides.forced != nullptr) return NormBy::kColumns;
  // Not the one that a product alone was tuned to.
  ProductPlan const product = choose_newest(problem, device, {nullptr, nullptr, struck});
  if (product.by != ProductBy::kTile || product.arch != ArchId::kSm90 ||
      !tma_writes_rows(problem, spec_of(problem.math).type)) {
    return NormBy::kColumns;
  }
  int const statistics_tile = statistics_tile_sm90(problem.math);
  TilesOfMathSm90 const tiles_of_math = tiles_sm90(problem.math);
  TileShapeSm90 const& shape = tiles_of_math.shapes[statistics_tile];
  if (!can_count(shape, problem)) return NormBy::kColumns;
  auto const cost = [&](int tile) {
    return estimate_tile(tiles_of_math.shapes[tile], problem, device).cost;
  };
  TileGrid const grid = count_tiles(shape, problem.m, problem.n);
  int64_t const tiles = ceil_div(grid.m * grid.n, device.sm_count);

  NormBy best = NormBy::kColumns;
  int64_t best_cost = cost(product.tile) + BatchNormCosts::passes(problem, 2);
  // Of a small z the estimates say little.
  int64_t const statistics = cost(statistics_tile) + tiles * BatchNormCosts::kStatisticsNs +
                             BatchNormCosts::passes(problem, 1);
  if (!struck.has(Part::kStatistics) && problem.y_bytes() >= kLeastBytesOfZ &&
      statistics < best_cost) {
    best = NormBy::kProductStatistics;
    best_cost = statistics;
  }
  if (keeps_z || splits_rows(problem.math) || struck.has(Part::kGroup)) return best;

  // All blocks read all of x while they go through a few features of the weight: it must stay in
  // L2. So many groups run at once.
  constexpr int64_t kMostBytesOfX = 24 << 20;
  int64_t const clusters = clusters_of_group(problem.m);
  int64_t const groups = device.sm_count / (GroupTile::kClusterN * clusters);
  if (clusters > kMostClusters || groups * clusters <= kMostLaunchesAtOnce ||
      problem.m * problem.k * problem.operand_bytes() > kMostBytesOfX) {
    return best;
  }
  int64_t const waves = ceil_div(ceil_div(problem.n, GroupTile::kM), groups);
  int64_t const group = std::max(cost(statistics_tile), waves * cost(statistics_tile) / tiles) +
                        waves * BatchNormCosts::kGroupNs + BatchNormCosts::kMergeNs / 2;
  return group < best_cost ? NormBy::kGroup : best;
}

// Whether a z whose statistics its product finds is normalized while the product runs: only one of
// more panels than one, that takes several waves of tiles, and of which CUTLASS, which rounds both
// sides up to whole panels, makes hardly any tiles of nothing.
inline bool normalizes_strips(Problem const& problem) {
  constexpr int64_t kLeastBytes = 32 << 20, kMostEmptyPercent = 1, kPanel = kStripsOfPanel;
  if (size_of(problem.y_type) != 2 || problem.y_bytes() < kLeastBytes) return false;
  int64_t const strips = StripCounters::strips(problem.n);
  int64_t const tiles = ceil_div(problem.m, int64_t(rows_of_part(problem.math)));
  int64_t const rounded = ceil_div(strips, kPanel) * kPanel * (ceil_div(tiles, kPanel) * kPanel);
  return strips > kPanel && rounded * 100 <= strips * tiles * (100 + kMostEmptyPercent);
}

// What a pass over z costs, for an A100: three quarters of the bandwidth in its data sheet. No time
// was taken on one.
inline int64_t cost_of_pass_sm80(Problem const& problem) {
  constexpr int64_t kLaunchNs = 4000, kBytesPerUs = 1500000;
  return kLaunchNs + problem.y_bytes() * 1000 / kBytesPerUs;
}

// The index of the SM80 tile that finds the statistics of its result, in place of the product that
// was chosen; or -1, if z is to be read again, as where SM90 kernels run: there a batch norm of its
// own behind the same tile took 96 to 100% of the time (H200, models 33 and 39). A tile that was
// forced, or tuned to, stays the same. Of the others the one that is cheapest together with the
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
