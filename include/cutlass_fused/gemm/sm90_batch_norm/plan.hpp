// What SM90 kernels do with a batch norm in training, or a softmax, behind their product. Plain
// host integers.
#pragma once

#include "cutlass_fused/gemm/sm90/estimates.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tiles.hpp"
#include "cutlass_fused/norm/strips.hpp"

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

// kColumns, kProductStatistics or kGroup, whichever the estimates prefer behind this product.
// kGroup only if z need not be kept.
inline NormBy choose_norm_sm90(Problem const& problem, ProductPlan const& product, bool keeps_z,
                               Device const& device, Struck struck) {
  if (!tma_writes_rows(problem, spec_of(problem.math).type)) return NormBy::kColumns;
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
  // The estimates say little about a small z.
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

inline NormPlan plan_norm_sm90(Problem const& problem, ProductPlan const& product,
                               NormWishes const& wishes, Device const& device, Struck struck) {
  bool const splits = splits_rows(problem.math);
  auto const choose = [&](bool keeps_z) {
    return choose_norm_sm90(problem, product, keeps_z, device, struck);
  };
  if (!splits && !wishes.keeps_z && choose(false) == NormBy::kGroup) {
    constexpr int kTile = 0;  // kOwnTile of gemm/registry.hpp: the one that no table has
    return {NormBy::kGroup, {ProductBy::kTile, ArchId::kSm90, kTile, {Raster::kAlongN, 1}}};
  }
  if (!wishes.finds_statistics || choose(true) != NormBy::kProductStatistics) return {};
  bool const strips =
      !splits && wishes.strips && !struck.has(Part::kStrips) && normalizes_strips(problem);
  int const tile = statistics_tile_sm90(problem.math);
  Raster const raster =
      strips ? Raster{Raster::kAlongN, kStripsOfPanel}
             : estimate_tile(tiles_sm90(problem.math).shapes[tile], problem, device).raster;
  return {strips ? NormBy::kStrips : NormBy::kProductStatistics,
          {ProductBy::kTile, ArchId::kSm90, tile, raster}};
}

// The tile with fp32 results for a softmax, if it is cheaper than `product`, which serves others;
// else kNone.
inline ProductPlan choose_logits_sm90(Problem const& problem, ProductPlan const& product,
                                      Device const& device) {
  constexpr int kTile = find_tile<sm90::Tiles, LogitsTile>();
  TileShapeSm90 const& logits = sm90::Tiles::kShapes[kTile];
  if (problem.engine() != Engine::kPlain || !tma_writes_rows(problem, DataType::kFloat32) ||
      !can_count(logits, problem)) {
    return {};
  }
  Estimate const estimate = estimate_tile(logits, problem, device);
  TileShapeSm90 const& other = tiles_sm90(problem.math).shapes[product.tile];
  if (estimate.cost >= estimate_tile(other, problem, device).cost) return {};
  return {ProductBy::kTile, ArchId::kSm90, kTile, estimate.raster};
}

}  // namespace cutlass_fused
