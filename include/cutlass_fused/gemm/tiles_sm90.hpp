// THE table of SM90 tiles. Plain integers, no CUTLASS: the choice and host tests read it too.
// A new tile is one line of the list below.
#pragma once

#include <array>
#include <string>

#include "cutlass_fused/math.hpp"

namespace cutlass_fused {

// How the warps of a block share the work; one warp is the producer, which loads with TMA.
enum class ScheduleSm90 {
  kCooperative,  // two warpgroups on halves of one tile; a persistent grid
  kPingpong,     // two warpgroups on a tile each, so that one's epilogue hides behind the other
  kSingle        // one warpgroup, one tile to a block
};

// What the tile's rows are. Swapped, they are features: rows of weight. A tensor-core instruction
// has 64 rows and as few as eight columns, so that a small M must lie along the tile's columns.
enum class Operands { kPlain, kSwapped };

// How y is written.
enum class Output {
  kTma,    // in the input's type, from shared memory, to rows aligned to 16 bytes
  kDirect  // in a type chosen at run time, from registers, to rows of any alignment
};

// A tile of kM x kN outputs; each stage holds kBytesK bytes of K of both operands.
template <int M, int N, int BytesK, int ClusterM, int ClusterN, ScheduleSm90 S, Operands O,
          Output Out>
struct TileSm90 {
  static constexpr int kM = M;            // 64 to 256: 64 for each warpgroup that shares the tile
  static constexpr int kN = N;            // 8 to 256
  static constexpr int kBytesK = BytesK;  // 128 or more
  static constexpr int kClusterM = ClusterM;  // tiles of a cluster share their loads
  static constexpr int kClusterN = ClusterN;
  static constexpr ScheduleSm90 kSchedule = S;
  static constexpr Operands kOperands = O;
  static constexpr Output kOutput = Out;
};

// The same as values, for the host.
struct TileShapeSm90 {
  int m, n, bytes_k, cluster_m, cluster_n;
  ScheduleSm90 schedule;
  Operands operands;
  Output output;
  int stage_ns, tile_ns;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(bytes_k) + "B/" +
           std::to_string(cluster_m) + "x" + std::to_string(cluster_n) +
           (schedule == ScheduleSm90::kCooperative ? ".cooperative"
            : schedule == ScheduleSm90::kPingpong  ? ".pingpong"
                                                   : ".single") +
           (operands == Operands::kSwapped ? ".swapped" : "") +
           (output == Output::kDirect ? ".direct" : "");
  }
};

// A tile of the table, the nanoseconds of one of its stages on a busy SM and those of a tile beside
// its stages: fitted to measurements, for the heuristic (which see), and no part of the kernel's
// type.
template <class Tile, int StageNs, int TileNs>
struct TimedSm90 {
  using type = Tile;
  static constexpr TileShapeSm90 kShape{
      Tile::kM,        Tile::kN,        Tile::kBytesK, Tile::kClusterM, Tile::kClusterN,
      Tile::kSchedule, Tile::kOperands, Tile::kOutput, StageNs,         TileNs};
};

template <class... Rows>
struct TileListSm90 {
  static constexpr int kSize = sizeof...(Rows);
  static constexpr std::array<TileShapeSm90, kSize> kShapes{Rows::kShape...};
};

namespace sm90 {
constexpr ScheduleSm90 kCooperative = ScheduleSm90::kCooperative;
constexpr ScheduleSm90 kPingpong = ScheduleSm90::kPingpong;
constexpr ScheduleSm90 kSingle = ScheduleSm90::kSingle;
constexpr Operands kPlain = Operands::kPlain, kSwapped = Operands::kSwapped;
constexpr Output kTma = Output::kTma, kDirect = Output::kDirect;

// Those for y in another type or of unaligned rows stand last.
using Tiles = TileListSm90<
    //                 M    N  K bytes cluster                                 ns: stage, tile
    TimedSm90<TileSm90<128, 128, 128, 2, 1, kPingpong, kPlain, kTma>, 320, 1276>,
    TimedSm90<TileSm90<256, 128, 128, 1, 2, kCooperative, kPlain, kTma>, 640, 2566>,
    TimedSm90<TileSm90<128, 192, 128, 2, 1, kCooperative, kPlain, kTma>, 488, 2926>,
    TimedSm90<TileSm90<64, 128, 128, 1, 1, kPingpong, kPlain, kTma>, 292, 0>,
    TimedSm90<TileSm90<128, 128, 128, 2, 1, kPingpong, kSwapped, kTma>, 309, 2749>,
    TimedSm90<TileSm90<128, 64, 256, 1, 1, kCooperative, kSwapped, kTma>, 458, 2034>,
    TimedSm90<TileSm90<64, 128, 256, 1, 1, kSingle, kSwapped, kTma>, 623, 425>,
    TimedSm90<TileSm90<64, 64, 256, 1, 1, kSingle, kSwapped, kTma>, 369, 863>,
    TimedSm90<TileSm90<64, 32, 512, 1, 1, kSingle, kSwapped, kTma>, 537, 1269>,
    TimedSm90<TileSm90<64, 16, 512, 1, 1, kSingle, kSwapped, kTma>, 298, 1741>,
    TimedSm90<TileSm90<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect>, 340, 2500>,
    TimedSm90<TileSm90<64, 32, 512, 1, 1, kSingle, kSwapped, kDirect>, 560, 1800>>;
}  // namespace sm90

template <class Math>
struct TilesSm90For {
  using type = TileListSm90<>;
};
template <>
struct TilesSm90For<F16> {
  using type = sm90::Tiles;
};
template <>
struct TilesSm90For<Bf16> {
  using type = sm90::Tiles;
};

}  // namespace cutlass_fused
