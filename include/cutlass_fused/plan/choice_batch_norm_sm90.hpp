// When a batch norm in training runs in, or behind, an SM90 kernel that finds the statistics
// itself. Plain host integers.
#pragma once

#include "cutlass_fused/plan/choice_sm90.hpp"
#include "cutlass_fused/gemm/batch_norm.hpp"

namespace cutlass_fused {

// The one tile of each kernel. Clusters of the first lie along the batch, whose blocks wait for
// each other.
using GroupTile =
    TileSm90<128, 256, 128, 1, 2, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>;
template <class Math>
using StatisticsTile = std::conditional_t<
    Math::kEngine == Engine::kFp16x3,
    TileSm90<128, 128, 256, 2, 1, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>,
    TileSm90<128, 256, 128, 2, 1, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>>;

static_assert(GroupTile::kN == kRowsOfPart<Bf16>);
static_assert(StatisticsTile<Bf16>::kN == kRowsOfPart<Bf16> &&
              StatisticsTile<Fp16x1>::kN == kRowsOfPart<Fp16x1> &&
              StatisticsTile<Fp16x3>::kN == kRowsOfPart<Fp16x3>);

enum class BatchNormKernel {
  kSeparate,    // statistics and normalization by kernels of their own, behind any product
  kStatistics,  // the product finds the statistics
  kGroup        // the product normalizes
};

// Clusters whose blocks hold all rows of some features: those that wait for each other. Of more
// than two, several launches at once might each run some, and none all: gemm/sm90_batch_norm/run.hpp.
constexpr int64_t kMostClusters = 2, kMostLaunchesAtOnce = 32;
constexpr int kMostTilesOfGroup = kMostClusters * GroupTile::kClusterN;
inline int64_t clusters_of_group(int64_t rows) {
  return ceil_div(rows, GroupTile::kN * GroupTile::kClusterN);
}

// What a tile takes beside its mainloop where it finds statistics, and where blocks wait for each
// other too; and what the passes over z cost, of which a microsecond of an H200 reads or writes so
// many bytes.
struct BatchNormCosts {
  static constexpr int64_t kStatisticsNs = 1000, kGroupNs = 4500;
  static constexpr int64_t kPassNs = 4000, kMergeNs = 4000, kBytesPerUs = 3500000;

  static int64_t passes(GemmArgs const& gemm, int passes) {
    int64_t const bytes = gemm.m * gemm.n * size_of(gemm.y_type);
    return kMergeNs + passes * kPassNs + (2 * passes - 1) * bytes * 1000 / kBytesPerUs;
  }
};

// By the estimates, for a matrix that TMA reads; unless the tile is forced, which is one of a
// product alone. kGroup only if z need not be kept.
template <class Math>
BatchNormKernel choose_batch_norm_kernel(GemmArgs const& gemm, bool keep_z, Device const& device) {
  if (device.code != 90 || gemm.k == 0 || forced_tile.load(std::memory_order_acquire) != nullptr) {
    return BatchNormKernel::kSeparate;
  }
  Choice const choice = choose_kernel_sm90<Math>(gemm, device);
  if (choice.kind != KernelKind::kAligned || !tma_writes_rows(gemm, Math::kOut)) {
    return BatchNormKernel::kSeparate;
  }
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, StatisticsTile<Math>>();
  Problem const problem = make_problem<Math>(gemm);
  TileShapeSm90 const& shape = TilesSm90For<Math>::type::kShapes[kTile];
  if (!can_count(shape, gemm)) return BatchNormKernel::kSeparate;
  auto const cost = [&](int tile) { return estimate_tile<Math>(tile, problem, device).cost; };
  TileGrid const grid = count_tiles(shape, gemm.m, gemm.n);
  int64_t const tiles = ceil_div(grid.m * grid.n, device.sm_count);

  BatchNormKernel best = BatchNormKernel::kSeparate;
  int64_t best_cost = cost(choice.tile) + BatchNormCosts::passes(gemm, 2);
  // Of a small z the estimates say little: launches take longer than passes over it.
  constexpr int64_t kLeastBytesOfZ = 1 << 20;
  int64_t const statistics =
      cost(kTile) + tiles * BatchNormCosts::kStatisticsNs + BatchNormCosts::passes(gemm, 1);
  if (gemm.m * gemm.n * size_of(gemm.y_type) >= kLeastBytesOfZ && statistics < best_cost) {
    best = BatchNormKernel::kStatistics;
    best_cost = statistics;
  }
  if (keep_z || splits_rows(Math::kEngine)) return best;

  // All blocks read all of x while they go through a few features of the weight: it must stay in
  // L2. So many groups run at once.
  constexpr int64_t kMostBytesOfX = 24 << 20;
  int64_t const clusters = clusters_of_group(gemm.m);
  int64_t const groups = device.sm_count / (GroupTile::kClusterN * clusters);
  if (clusters > kMostClusters || groups * clusters <= kMostLaunchesAtOnce ||
      gemm.m * gemm.k * size_of(Math::kIn) > kMostBytesOfX) {
    return best;
  }
  int64_t const waves = ceil_div(ceil_div(gemm.n, GroupTile::kM), groups);
  int64_t const group = std::max(cost(kTile), waves * cost(kTile) / tiles) +
                        waves * BatchNormCosts::kGroupNs + BatchNormCosts::kMergeNs / 2;
  return group < best_cost ? BatchNormKernel::kGroup : best;
}

// Whether a z whose statistics its product finds is normalized while the product runs: only one of
// more panels than one, that takes several waves of tiles, and of which CUTLASS, which rounds both
// sides up to whole panels, makes hardly any tiles of nothing.
inline bool normalizes_strips(GemmArgs const& gemm) {
  constexpr int64_t kLeastBytesOfZ = 32 << 20, kMostEmptyPercent = 1, kPanel = kStripsOfPanel;
  if (size_of(gemm.y_type) != 2 || gemm.m * gemm.n * 2 < kLeastBytesOfZ) return false;
  int64_t const strips = StripCounters::strips(gemm.n);
  int64_t const tiles = ceil_div(gemm.m, kRowsOfPart<Bf16>);
  int64_t const rounded = ceil_div(strips, kPanel) * kPanel * (ceil_div(tiles, kPanel) * kPanel);
  return strips > kPanel && rounded * 100 <= strips * tiles * (100 + kMostEmptyPercent);
}

}  // namespace cutlass_fused
