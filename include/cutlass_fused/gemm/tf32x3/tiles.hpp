// THE table of tiles of tf32x3 kernels: those for every GPU, and those for GPUs of compute
// capability 9.0. Plain integers: plans and host tests read it too. A new tile is one line below.
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
  static constexpr int kSummers = kThreads;  // threads that have sums
  static constexpr int kSharedBytes = 4 * kStages * (kM + kN) * kK;
};

// A tile by WGMMA, for GPUs of compute capability 9.0 (gemm/tf32x3_sm90): a warpgroup for each 64
// rows and each share of the columns, two in all, and two that load.
template <int M, int N, int WarpgroupsN, int Stages>
struct TileTf32x3Sm90 {
  static constexpr int kM = M;   // 64 or 128
  static constexpr int kN = N;   // 64 or 128 for each warpgroup
  static constexpr int kK = 32;  // 128 bytes, the width of a swizzle
  static constexpr int kWarpgroupsM = M / 64, kWarpgroupsN = WarpgroupsN, kWarpsK = 1;
  static constexpr int kStages = Stages;
  static constexpr int kBlocksPerSm = 1;
  static constexpr int kSplitters = 2;  // warpgroups that load, and split the weight
  static constexpr int kSummers = 128 * kWarpgroupsM * kWarpgroupsN;  // threads that have sums
  static constexpr int kThreads = kSummers + 128 * kSplitters;
  static constexpr int kStoredColumns = 64;  // of 16 rows, that a warp stores at once
  static constexpr int kBarrierBytes = 2 * 8 * kStages;
  static constexpr int kStageBytes = 4 * (kM + 2 * kN) * kK;
  static constexpr int kStagesBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes =
      kStagesBytes + 4 * kSummers / 32 * 16 * kStoredColumns + kBarrierBytes;
};

// The generation of kernels that has the tile.
template <class Tile>
constexpr ArchId arch_of = ArchId::kSm80;
template <int... kNumbers>
constexpr ArchId arch_of<TileTf32x3Sm90<kNumbers...>> = ArchId::kSm90;

// The same as values, for the host, and what was measured of it: nanoseconds of a block beside its
// stages, of what a wave of blocks behind the first takes beside its own, of a stage of a block
// alone on its SM, and of a stage of a block on a busy SM.
struct TileShapeTf32x3 {
  ArchId arch;
  int m, n, k, warps_k, stages, blocks_per_sm, shared_bytes;
  int tile_ns, next_ns, latency_ns, stage_ns;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (warps_k > 1 ? "w" + std::to_string(warps_k) : "") +
           (arch == ArchId::kSm90 ? ".sm90" : "") + ".tf32x3";
  }
};

template <class Tile, int TileNs, int NextNs, int LatencyNs, int StageNs>
struct TimedTf32x3 {
  using type = Tile;
  static_assert(Tile::kSharedBytes <= 227 * 1024);  // else no GPU could serve it
  static constexpr TileShapeTf32x3 kShape{
      arch_of<Tile>,      Tile::kM,           Tile::kN, Tile::kK, Tile::kWarpsK, Tile::kStages,
      Tile::kBlocksPerSm, Tile::kSharedBytes, TileNs,   NextNs,   LatencyNs,     StageNs};
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
        if (a.arch == b.arch && a.m == b.m && a.n == b.n && a.k == b.k && a.warps_k == b.warps_k) {
          return false;
        }
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
    TimedTf32x3<TileTf32x3<64, 64, 64, 1, 3, 2>, 3423, 1835, 1244, 1084>,  // many tiles
    //                  M   N  warpgroups  stages  ns:
    TimedTf32x3<TileTf32x3Sm90<128, 128, 1, 4>, 4300, 1830, 1200, 1200>,
    TimedTf32x3<TileTf32x3Sm90<128, 64, 1, 6>, 3040, 780, 880, 880>,
    TimedTf32x3<TileTf32x3Sm90<64, 128, 2, 4>, 3120, 1080, 860, 860>>;

static_assert(TilesTf32x3::has_unique_names());

// The index of the tile of this name; -1 if there is none.
inline int find_tile_tf32x3(std::string const& name) {
  for (int i = 0; i < TilesTf32x3::kSize; ++i) {
    if (TilesTf32x3::kShapes[i].name() == name) return i;
  }
  return -1;
}

}  // namespace cutlass_fused
