// THE table of tiles of tf32x3 kernels. Plain integers: plans and host tests read it too. A new
// tile is one line below.
#pragma once

#include <string>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A tile of kM x kN outputs by warps of 32 x 32 each, in stages of kK of K. Each share of 16 of K
// in a stage is that of one of kWarpsK warps that have the same outputs: small problems need more
// warps than there are outputs for.
template <int M, int N, int K, int WarpsK, int Stages, int BlocksPerSm>
struct TileTf32x3 {
  static constexpr int kWarp = 32;  // rows and columns of a warp
  static constexpr int kM = M;
  static constexpr int kN = N;
  static constexpr int kK = K;
  static constexpr int kWarpsM = M / kWarp, kWarpsN = N / kWarp, kWarpsK = WarpsK;
  static constexpr int kStages = Stages;
  static constexpr int kBlocksPerSm = BlocksPerSm;  // there are registers and memory for so many
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
  static constexpr int kSharedBytes = 4 * kStages * (kM + kN) * kK;
};

// The same as values, for the host, and what was measured of it: nanoseconds of a block beside its
// stages, of what a wave of blocks behind the first takes beside its own, of a stage of a block
// alone on its SM, and of a stage of a block on a busy SM.
struct TileShapeTf32x3 {
  int m, n, k, warps_k, stages, blocks_per_sm, shared_bytes;
  int tile_ns, next_ns, latency_ns, stage_ns;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (warps_k > 1 ? "w" + std::to_string(warps_k) : "") + ".tf32x3";
  }
};

template <class Tile, int TileNs, int NextNs, int LatencyNs, int StageNs>
struct TimedTf32x3 {
  using type = Tile;
  static constexpr TileShapeTf32x3 kShape{
      Tile::kM,           Tile::kN, Tile::kK, Tile::kWarpsK, Tile::kStages, Tile::kBlocksPerSm,
      Tile::kSharedBytes, TileNs,   NextNs,   LatencyNs,     StageNs};
};

template <class... Rows>
struct TileListTf32x3 {
  static constexpr int kSize = sizeof...(Rows);
  static constexpr TileShapeTf32x3 kShapes[] = {Rows::kShape...};

  // Names say neither stages nor blocks: two tiles that differ in them alone could not be told
  // apart.
  static constexpr bool has_unique_names() {
    for (int i = 0; i < kSize; ++i) {
      for (int j = 0; j < i; ++j) {
        TileShapeTf32x3 const &a = kShapes[i], &b = kShapes[j];
        if (a.m == b.m && a.n == b.n && a.k == b.k && a.warps_k == b.warps_k) return false;
      }
    }
    return true;
  }
};

using TilesTf32x3 = TileListTf32x3<
    //              M   N   K  warps  stages  blocks   ns:   tile  next  latency stage
    TimedTf32x3<TileTf32x3<32, 32, 64, 4, 4, 3>, 2584, 2584, 474, 350>,  // the smallest problems
    TimedTf32x3<TileTf32x3<32, 64, 64, 2, 3, 2>, 2582, 2582, 700, 597>,  // few tiles
    TimedTf32x3<TileTf32x3<64, 64, 32, 1, 4, 2>, 2898, 1563, 655, 525>,  // many outputs of a short
                                                                         // K
    TimedTf32x3<TileTf32x3<64, 64, 64, 1, 3, 2>, 3423, 1835, 1244, 1084>>;  // many tiles

static_assert(TilesTf32x3::has_unique_names());

// The index of the tile of this name; -1 if there is none.
inline int find_tile_tf32x3(std::string const& name) {
  for (int i = 0; i < TilesTf32x3::kSize; ++i) {
    if (TilesTf32x3::kShapes[i].name() == name) return i;
  }
  return -1;
}

}  // namespace cutlass_fused
