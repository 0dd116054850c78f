// The tiles of SM90 products that find the statistics of their result, and of those with fp32
// results for a softmax: one of each.
#pragma once

#include "cutlass_fused/gemm/batch_norm.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

// Clusters of the first lie along the batch, whose blocks wait for each other.
using GroupTile =
    TileSm90<128, 256, 128, 1, 2, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>;
template <class Math>
using StatisticsTile = std::conditional_t<
    Math::kEngine == Engine::kFp16x3,
    TileSm90<128, 128, 256, 2, 1, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>,
    TileSm90<128, 256, 128, 2, 1, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>>;
using LogitsTile = StatisticsTile<Bf16>;

// Clusters whose blocks hold all rows of some features: those that wait for each other. Of more
// than two, several launches at once might each run some, and none all: launch.hpp.
constexpr int64_t kMostClusters = 2, kMostLaunchesAtOnce = 32;
constexpr int kMostTilesOfGroup = kMostClusters * GroupTile::kClusterN;
inline int64_t clusters_of_group(int64_t rows) {
  return ceil_div(rows, GroupTile::kN * GroupTile::kClusterN);
}

// The index of the statistics' tile in its table, for the host.
inline int statistics_tile_sm90(MathId math) {
  switch (spec_of(math).engine) {
    case Engine::kPlain:
      return find_tile<sm90::Tiles, StatisticsTile<Bf16>>();
    case Engine::kFp16x3:
      return find_tile<sm90::TilesFp16x3, StatisticsTile<Fp16x3>>();
    case Engine::kFp16x1:
      return find_tile<sm90::TilesFp16x1, StatisticsTile<Fp16x1>>();
    case Engine::kSimt:
      break;
  }
  return -1;
}

static_assert(GroupTile::kN == rows_of_part(MathId::kBf16));
static_assert(StatisticsTile<Bf16>::kN == rows_of_part(MathId::kBf16) &&
              StatisticsTile<Fp16x1>::kN == rows_of_part(MathId::kFp16x1) &&
              StatisticsTile<Fp16x3>::kN == rows_of_part(MathId::kFp16x3));

}  // namespace cutlass_fused
