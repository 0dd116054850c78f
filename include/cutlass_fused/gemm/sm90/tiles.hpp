// THE table of SM90 tiles. Plain integers, no CUTLASS: plans and host tests read it too.
// A new tile is one line of a list below.
#pragma once

#include <array>
#include <string>

#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// How the warps of a block share the work; one warp is the producer, which loads with TMA.
enum class ScheduleSm90 {
  kCooperative,  // two warpgroups on halves of one tile; a persistent grid
  kPingpong,     // two warpgroups on a tile each, so that one's epilogue hides behind the other
  kSingle,       // one warpgroup, one tile to a block
  // Our own, for few rows: a warpgroup for each 64 rows of a tile, one tile to a block, K cut into
  // slices, one to each block of a cluster. Swapped operands; y is written directly.
  kSlices,     // with the stages that one block to an SM leaves room for
  kSlicesPair  // ... two blocks
};

constexpr bool slices_k(ScheduleSm90 schedule) {
  return schedule == ScheduleSm90::kSlices || schedule == ScheduleSm90::kSlicesPair;
}
constexpr bool is_persistent(ScheduleSm90 schedule) {
  return schedule == ScheduleSm90::kCooperative || schedule == ScheduleSm90::kPingpong;
}

// Whether a tile that slices K, of so many columns, has the registers that an fp32 result needs.
constexpr bool can_promote(int columns) { return columns <= 128; }

// What the tile's rows are. Swapped, they are features: rows of weight. A tensor-core instruction
// has 64 rows and as few as eight columns, so that a small M must lie along the tile's columns.
enum class Operands { kPlain, kSwapped };

// How y is written.
enum class Output {
  kTma,     // in the input's type, from shared memory, to rows aligned to 16 bytes
  kDirect,  // in a type chosen at run time, from registers, to rows of any alignment
  kRows  // in the input's type, from shared memory, to rows of any alignment; of swapped operands
};

// A tile of kM x kN outputs; each stage holds kBytesK bytes of K of both operands.
template <int M, int N, int BytesK, int ClusterM, int ClusterN, ScheduleSm90 S, Operands O,
          Output Out>
struct TileSm90 {
  static constexpr int kM = M;                // 32 to 256; of slices up to 64 for each warpgroup
  static constexpr int kN = N;                // 8 to 256
  static constexpr int kBytesK = BytesK;      // 128 or more
  static constexpr int kClusterM = ClusterM;  // tiles of a cluster share their loads
  static constexpr int kClusterN = ClusterN;
  static constexpr ScheduleSm90 kSchedule = S;
  static constexpr Operands kOperands = O;
  static constexpr Output kOutput = Out;
  static constexpr Major kWeightMajor = Major::kK;
};

// The same for a weight whose parts lie along N (gemm/fp16x3_sm90/weight_along_n.hpp), as an
// instruction's rows alone: of a tile with swapped operands.
template <class Tile>
struct AlongN : Tile {
  static_assert(Tile::kOperands == Operands::kSwapped);
  static constexpr Major kWeightMajor = Major::kMn;
};

// Fitted to measurements: the nanoseconds of one of a tile's stages on a busy SM, and those of a
// tile beside its stages.
struct TileTimes {
  int stage_ns, tile_ns;
};

// A tile as values, for the host.
struct TileShapeSm90 {
  int m, n, bytes_k, cluster_m, cluster_n;
  ScheduleSm90 schedule;
  Operands operands;
  Output output;
  TileTimes times;

  std::string name() const {
    constexpr char const* kSchedules[] = {".cooperative", ".pingpong", ".single", ".split",
                                          ".splitpair"};
    constexpr char const* kOutputs[] = {"", ".direct", ".rows"};
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(bytes_k) + "B/" +
           std::to_string(cluster_m) + "x" + std::to_string(cluster_n) +
           kSchedules[static_cast<int>(schedule)] +
           (operands == Operands::kSwapped ? ".swapped" : "") + kOutputs[static_cast<int>(output)];
  }
};

// A tile of a table with its times, which are no part of the kernel's type.
template <class Tile, int StageNs, int TileNs>
struct TimedSm90 {
  using type = Tile;
  static constexpr TileShapeSm90 kShape{Tile::kM,        Tile::kN,        Tile::kBytesK,
                                        Tile::kClusterM, Tile::kClusterN, Tile::kSchedule,
                                        Tile::kOperands, Tile::kOutput,   {StageNs, TileNs}};
};

template <class... Rows>
struct TileListSm90 {
  static constexpr int kSize = sizeof...(Rows);
  static constexpr std::array<TileShapeSm90, kSize> kShapes{Rows::kShape...};
};

// The index of a tile in a list that has it.
template <class List, class Tile>
struct FindTile;
template <class... Rows, class Tile>
struct FindTile<TileListSm90<Rows...>, Tile> {
  static constexpr int find() {
    int index = -1, i = 0;
    (void)((index = std::is_same_v<typename Rows::type, Tile> ? i : index, ++i), ...);
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
template <int M, int N, int BytesK, int ClusterM, int ClusterN, ScheduleSm90 S, Operands O,
          Output Out, int StageNs, int TileNs>
using TileRow = TimedSm90<TileSm90<M, N, BytesK, ClusterM, ClusterN, S, O, Out>, StageNs, TileNs>;

constexpr ScheduleSm90 kCooperative = ScheduleSm90::kCooperative;
constexpr ScheduleSm90 kPingpong = ScheduleSm90::kPingpong;
constexpr ScheduleSm90 kSingle = ScheduleSm90::kSingle;
constexpr ScheduleSm90 kSlices = ScheduleSm90::kSlices, kSlicesPair = ScheduleSm90::kSlicesPair;
constexpr Operands kPlain = Operands::kPlain, kSwapped = Operands::kSwapped;
constexpr Output kTma = Output::kTma, kDirect = Output::kDirect, kRows = Output::kRows;

// Each is the fastest somewhere in M = 1 to 16384 by N x K = 1000 x 2048 to 28672 x 8192 on an
// H200. Tiles that slice K and the last one, which is timed against none, serve y in another type
// and of unaligned rows too.
using Tiles = TileListSm90<
    //  M    N  K bytes cluster                                    ns of a stage, a tile
    TileRow<128, 128, 128, 2, 1, kPingpong, kPlain, kTma, 315, 936>,      // M near 256, N near 8192
    TileRow<128, 192, 128, 2, 1, kCooperative, kPlain, kTma, 495, 2361>,  // M near 256, N near
                                                                          // 11000
    TileRow<128, 128, 128, 2, 1, kPingpong, kSwapped, kTma, 329, 405>,    // M in thousands, short K
                                                                          // or N
    TileRow<128, 256, 128, 2, 1, kCooperative, kSwapped, kTma, 568, 4266>,  // most of many rows
    TileRow<256, 192, 128, 2, 1, kCooperative, kSwapped, kTma, 875, 3169>,  // M near 1536
    TileRow<64, 128, 256, 1, 1, kSingle, kSwapped, kTma, 440, 1080>,     // M near 1024, N near 1024
    TileRow<64, 64, 256, 1, 1, kSingle, kSwapped, kTma, 330, 972>,       // M to 512, N near 1024
    TileRow<64, 128, 256, 1, 1, kSingle, kSwapped, kRows, 440, 1380>,    // of odd N
    TileRow<128, 128, 128, 2, 1, kPingpong, kSwapped, kRows, 329, 505>,  // ... and many rows
    TileRow<32, 16, 512, 1, 1, kSlices, kSwapped, kDirect, 155, 1645>,   // M to 16, N near 4096
    TileRow<32, 32, 512, 1, 1, kSlices, kSwapped, kDirect, 210, 1635>,   // M to 32, N near 4096
    TileRow<32, 64, 256, 1, 1, kSlices, kSwapped, kDirect, 147, 1600>,   // M to 64, N near 4096
    TileRow<64, 16, 512, 1, 1, kSlices, kSwapped, kDirect, 249, 1635>,   // M to 16
    TileRow<64, 32, 512, 1, 1, kSlices, kSwapped, kDirect, 351, 2500>,   // M to 32
    TileRow<64, 64, 256, 1, 1, kSlicesPair, kSwapped, kDirect, 329, 2130>,  // M to 64, N near 11000
    TileRow<64, 128, 256, 1, 1, kSlices, kSwapped, kDirect, 426, 2195>,  // M to 256, N from 4096 to
                                                                         // 8192
    TileRow<128, 128, 128, 1, 1, kSlices, kSwapped, kDirect, 344, 3951>,  // M to 128, N near 11000
    TileRow<128, 192, 128, 1, 1, kSlices, kSwapped, kDirect, 485, 2306>,  // M near 192 and 384
    TileRow<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect, 340, 2500>>;

// Tiles of fp16x3. A stage holds hi and lo of a block of K, or of several.
using TilesFp16x3 = TileListSm90<
    //  M    N  K bytes cluster                                    ns of a stage, a tile
    TileRow<128, 128, 256, 2, 1, kCooperative, kSwapped, kTma, 682, 2475>,  // most of many rows
    TileRow<64, 128, 256, 2, 1, kPingpong, kSwapped, kTma, 370, 818>,    // M from 256, short K or N
    TileRow<64, 16, 512, 1, 1, kSlices, kSwapped, kDirect, 223, 2656>,   // M to 16
    TileRow<64, 32, 512, 1, 1, kSlices, kSwapped, kDirect, 334, 1751>,   // M to 128, N near 1024
    TileRow<64, 64, 256, 1, 1, kSlices, kSwapped, kDirect, 237, 1629>,   // M to 64
    TileRow<64, 128, 256, 1, 1, kSlices, kSwapped, kDirect, 391, 1667>,  // M near 128
    TileRow<128, 128, 256, 2, 1, kCooperative, kPlain, kDirect, 700, 2600>>;

// Tiles of fp16x1.
using TilesFp16x1 = TileListSm90<  //
    TileRow<128, 256, 128, 2, 1, kCooperative, kSwapped, kTma, 563, 4396>,
    TileRow<128, 128, 128, 2, 1, kPingpong, kSwapped, kTma, 303, 809>,
    TileRow<64, 128, 256, 1, 1, kSingle, kSwapped, kTma, 404, 1313>,
    TileRow<64, 16, 512, 1, 1, kSlices, kSwapped, kDirect, 400, 1400>,
    TileRow<64, 32, 512, 1, 1, kSlices, kSwapped, kDirect, 443, 897>,
    TileRow<64, 64, 256, 1, 1, kSlices, kSwapped, kDirect, 270, 1404>,
    TileRow<64, 128, 256, 1, 1, kSlices, kSwapped, kDirect, 414, 1822>,
    TileRow<128, 128, 128, 2, 1, kCooperative, kPlain, kDirect, 340, 2600>>;
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

// For the host.
struct TilesOfMathSm90 {
  TileShapeSm90 const* shapes;
  int count;
};
inline TilesOfMathSm90 tiles_sm90(MathId math) {
  switch (spec_of(math).engine) {
    case Engine::kPlain:
      return {sm90::Tiles::kShapes.data(), sm90::Tiles::kSize};
    case Engine::kFp16x3:
      return {sm90::TilesFp16x3::kShapes.data(), sm90::TilesFp16x3::kSize};
    case Engine::kFp16x1:
      return {sm90::TilesFp16x1::kShapes.data(), sm90::TilesFp16x1::kSize};
    case Engine::kSimt:
      break;
  }
  return {nullptr, 0};
}

}  // namespace cutlass_fused
