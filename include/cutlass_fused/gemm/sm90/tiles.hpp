// THE table of SM90 tiles. Plain integers, no CUTLASS: the choice and host tests read it too.
// A new tile is one line of the list below.
#pragma once

#include <array>
#include <string>

#include "cutlass_fused/common/math.hpp"

namespace cutlass_fused {

// How the warps of a block share the work; one warp is the producer, which loads with TMA.
enum class ScheduleSm90 {
  kCooperative,  // two warpgroups on halves of one tile; a persistent grid
  kPingpong,     // two warpgroups on a tile each, so that one's epilogue hides behind the other
  kSingle,       // one warpgroup, one tile to a block
  // Our own, for few rows: a warpgroup for each 64 rows of a tile, one tile to a block, K cut into
  // slices, one to each block of a cluster. Swapped operands; y is written directly.
  kSplit,     // with the stages that one block to an SM leaves room for
  kSplitPair  // ... two blocks
};

constexpr bool is_split(ScheduleSm90 schedule) {
  return schedule == ScheduleSm90::kSplit || schedule == ScheduleSm90::kSplitPair;
}
constexpr bool is_persistent(ScheduleSm90 schedule) {
  return schedule == ScheduleSm90::kCooperative || schedule == ScheduleSm90::kPingpong;
}

// Whether a split tile of so many columns has the registers that an fp32 result needs.
constexpr bool can_promote(int columns) { return columns <= 128; }

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
  static constexpr int kM = M;            // 32 to 256; of a split tile up to 64 for each warpgroup
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

  std::string name() const {
    constexpr char const* kSchedules[] = {".cooperative", ".pingpong", ".single", ".split",
                                          ".splitpair"};
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(bytes_k) + "B/" +
           std::to_string(cluster_m) + "x" + std::to_string(cluster_n) +
           kSchedules[static_cast<int>(schedule)] +
           (operands == Operands::kSwapped ? ".swapped" : "") +
           (output == Output::kDirect ? ".direct" : "");
  }
};

template <class... Tiles>
struct TileListSm90 {
  static constexpr int kSize = sizeof...(Tiles);
  static constexpr std::array<TileShapeSm90, kSize> kShapes{
      TileShapeSm90{Tiles::kM, Tiles::kN, Tiles::kBytesK, Tiles::kClusterM, Tiles::kClusterN,
                    Tiles::kSchedule, Tiles::kOperands, Tiles::kOutput}...};
};

// The index of a tile in a list that has it.
template <class List, class Tile>
struct FindTile;
template <class... Tiles, class Tile>
struct FindTile<TileListSm90<Tiles...>, Tile> {
  static constexpr int find() {
    int index = -1, i = 0;
    (void)((index = std::is_same_v<Tiles, Tile> ? i : index, ++i), ...);
    return index;
  }
};
template <class List, class Tile>
constexpr int find_tile() {
  constexpr int kIndex = FindTile<List, Tile>::find();
  static_assert(kIndex >= 0);
  return kIndex;
}

namespace sm90 {
constexpr ScheduleSm90 kCooperative = ScheduleSm90::kCooperative;
constexpr ScheduleSm90 kPingpong = ScheduleSm90::kPingpong;
constexpr ScheduleSm90 kSingle = ScheduleSm90::kSingle;
constexpr ScheduleSm90 kSplit = ScheduleSm90::kSplit, kSplitPair = ScheduleSm90::kSplitPair;
constexpr Operands kPlain = Operands::kPlain, kSwapped = Operands::kSwapped;
constexpr Output kTma = Output::kTma, kDirect = Output::kDirect;

// Each is the fastest somewhere in M = 1 to 16384 by N x K = 1000 x 2048 to 28672 x 8192 on an
// H200. Split tiles and the last one, which is timed against none, serve y in another type and of
// unaligned rows too.
using Tiles = TileListSm90<
    //       M    N  K bytes cluster
    TileSm90<128, 128, 128, 2, 1, kPingpong, kPlain, kTma>,       // M around 256, N around 8192
    TileSm90<128, 192, 128, 2, 1, kCooperative, kPlain, kTma>,    // M around 256, N around 11000
    TileSm90<128, 128, 128, 2, 1, kPingpong, kSwapped, kTma>,     // M in thousands, short K or N
    TileSm90<128, 256, 128, 2, 1, kCooperative, kSwapped, kTma>,  // most products of many rows
    TileSm90<256, 192, 128, 2, 1, kCooperative, kSwapped, kTma>,  // M around 1536
    TileSm90<64, 128, 256, 1, 1, kSingle, kSwapped, kTma>,        // M around 1024, N around 1024
    TileSm90<64, 64, 256, 1, 1, kSingle, kSwapped, kTma>,         // M to 512, N around 1024
    TileSm90<32, 16, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 16, N around 4096
    TileSm90<32, 32, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 32, N around 4096
    TileSm90<32, 64, 256, 1, 1, kSplit, kSwapped, kDirect>,       // M to 64, N around 4096
    TileSm90<64, 16, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 16
    TileSm90<64, 32, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 32
    TileSm90<64, 64, 256, 1, 1, kSplitPair, kSwapped, kDirect>,   // M to 64, N around 11000
    TileSm90<64, 128, 256, 1, 1, kSplit, kSwapped, kDirect>,      // M to 256, N from 4096 to 8192
    TileSm90<128, 128, 128, 1, 1, kSplit, kSwapped, kDirect>,     // M to 128, N around 11000
    TileSm90<128, 192, 128, 1, 1, kSplit, kSwapped, kDirect>,     // M around 192 and 384
    TileSm90<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect>>;

// Of fp16x3: a stage holds hi and lo of a block of K, or of several.
using TilesFp16x3 = TileListSm90<
    //       M    N  K bytes  cluster
    TileSm90<128, 128, 256, 2, 1, kCooperative, kSwapped, kTma>,  // most products of many rows
    TileSm90<64, 128, 256, 2, 1, kPingpong, kSwapped, kTma>,      // M from 256, short K or N
    TileSm90<64, 16, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 16
    TileSm90<64, 32, 512, 1, 1, kSplit, kSwapped, kDirect>,       // M to 128, N around 1024
    TileSm90<64, 64, 256, 1, 1, kSplit, kSwapped, kDirect>,       // M to 64
    TileSm90<64, 128, 256, 1, 1, kSplit, kSwapped, kDirect>,      // M around 128
    TileSm90<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect>>;

// Of fp16x1.
using TilesFp16x1 = TileListSm90<  //
    TileSm90<128, 256, 128, 2, 1, kCooperative, kSwapped, kTma>,
    TileSm90<128, 128, 128, 2, 1, kPingpong, kSwapped, kTma>,
    TileSm90<64, 128, 256, 1, 1, kSingle, kSwapped, kTma>,
    TileSm90<64, 16, 512, 1, 1, kSplit, kSwapped, kDirect>,
    TileSm90<64, 32, 512, 1, 1, kSplit, kSwapped, kDirect>,
    TileSm90<64, 64, 256, 1, 1, kSplit, kSwapped, kDirect>,
    TileSm90<64, 128, 256, 1, 1, kSplit, kSwapped, kDirect>,
    TileSm90<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect>>;
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
template <>
struct TilesSm90For<Fp16x3> {
  using type = sm90::TilesFp16x3;
};
template <>
struct TilesSm90For<Fp16x1> {
  using type = sm90::TilesFp16x1;
};

}  // namespace cutlass_fused
