// THE table of SM80 tiles. Plain integers, no CUTLASS: plans and host tests read it too.
// A new tile is one line of a list below.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>

#include "cutlass_fused/common/math.hpp"

namespace cutlass_fused {

enum class Schedule {
  kDataParallel,  // one block per output tile
  kStreamK        // blocks share the K loops of few tiles evenly, reduced in a fixed order
};

// A tile of kM x kN outputs; each stage holds kBytesK bytes of K of both operands: 64 bytes are 32
// 16-bit elements.
template <int M, int N, int BytesK, int WarpsM, int WarpsN, int Stages, Schedule S>
struct TileSm80 {
  static constexpr int kM = M;            // 32 to 256
  static constexpr int kN = N;            // 64 to 256
  static constexpr int kBytesK = BytesK;  // 64 or 128
  static constexpr int kWarpsM = WarpsM;  // warps along M
  static constexpr int kWarpsN = WarpsN;  // warps along N; a warp's tile has 32 rows or more
  static constexpr int kStages = Stages;  // 2 or more
  static constexpr Schedule kSchedule = S;
};

// A tile as values, for the host.
struct TileShape {
  int m, n, bytes_k, warps_m, warps_n, stages;
  Schedule schedule;
  int stage_ns;

  // Bytes of shared memory: the stages of both operands, or the epilogue's exchange of one row of
  // warps (eight accumulator rows per warp, padded), which is smaller for every tile below.
  constexpr int shared_memory() const { return stages * (m + n) * bytes_k; }
  constexpr int threads() const { return 32 * warps_m * warps_n; }

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(bytes_k) + "B" +
           (schedule == Schedule::kStreamK ? ".streamk" : "");
  }
};

// A tile of a table, and the nanoseconds that one of its stages takes on a busy SM: fitted to
// measurements, for the estimate in spec.hpp, and no part of the kernel's type.
template <class Tile, int StageNs>
struct Timed {
  using type = Tile;
  static constexpr TileShape kShape{Tile::kM,      Tile::kN,      Tile::kBytesK,   Tile::kWarpsM,
                                    Tile::kWarpsN, Tile::kStages, Tile::kSchedule, StageNs};
};

template <class... Rows>
struct TileList {
  static constexpr int kSize = sizeof...(Rows);
  static constexpr TileShape kShapes[] = {Rows::kShape...};

  // Names say neither warps nor stages: two tiles that differ in them alone could not be told
  // apart.
  static constexpr bool has_unique_names() {
    for (int i = 0; i < kSize; ++i) {
      for (int j = 0; j < i; ++j) {
        TileShape const &a = kShapes[i], &b = kShapes[j];
        if (a.m == b.m && a.n == b.n && a.bytes_k == b.bytes_k && a.schedule == b.schedule) {
          return false;
        }
      }
    }
    return true;
  }
};

// One product per pair of operands. The large tile's 144 KiB are more than sm_86 and sm_89 have:
// the medium tile serves there.
using TilesSm80 = TileList<
    //             M    N  K bytes  warps  stages                 ns
    Timed<TileSm80<128, 256, 64, 2, 4, 6, Schedule::kDataParallel>, 565>,  // large problems
    Timed<TileSm80<128, 128, 64, 2, 2, 5, Schedule::kDataParallel>, 395>,  // medium ones
    Timed<TileSm80<128, 128, 64, 2, 2, 5, Schedule::kStreamK>, 295>,       // last wave nearly empty
    Timed<TileSm80<64, 64, 128, 2, 2, 4, Schedule::kDataParallel>, 253>,   // small ones
    Timed<TileSm80<64, 64, 128, 2, 2, 4, Schedule::kStreamK>, 270>,        // few tiles, long K
    Timed<TileSm80<32, 128, 128, 1, 4, 4, Schedule::kDataParallel>, 460>,  // small M, many columns
    Timed<TileSm80<32, 64, 128, 1, 2, 4, Schedule::kStreamK>, 275>>;       // small M, few columns

// Three products per pair, of hi and lo that lie in blocks of 128 bytes. Sums are twofold, so a
// warp has registers for 64x32 of them.
using TilesSm80Fp16x3 = TileList<
    //             M    N  K bytes  warps  stages                 ns
    Timed<TileSm80<128, 128, 128, 2, 4, 3, Schedule::kDataParallel>, 816>,  // large problems
    Timed<TileSm80<128, 64, 128, 4, 2, 3, Schedule::kStreamK>, 598>,      // last wave nearly empty
    Timed<TileSm80<64, 64, 128, 2, 2, 4, Schedule::kDataParallel>, 396>,  // small ones
    Timed<TileSm80<32, 64, 128, 1, 2, 5, Schedule::kStreamK>, 590>>;      // small M, few columns

static_assert(TilesSm80::has_unique_names() && TilesSm80Fp16x3::has_unique_names());

template <class Math>
struct TilesSm80For {
  using type = TilesSm80;
};
template <>
struct TilesSm80For<Fp16x3> {
  using type = TilesSm80Fp16x3;
};

// Whether a tile's kernel can find the statistics of its result: a block computes the whole of a
// tile, and as one of those for large products.
constexpr bool can_find_statistics(Schedule schedule, int rows) {
  return schedule == Schedule::kDataParallel && rows >= 128;
}

// For the host. Only split rows have tiles of their own; products on CUDA cores have none.
struct TilesOfMathSm80 {
  TileShape const* shapes;
  int count;
};
inline TilesOfMathSm80 tiles_sm80(MathId math) {
  switch (spec_of(math).engine) {
    case Engine::kPlain:
    case Engine::kFp16x1:
      return {TilesSm80::kShapes, TilesSm80::kSize};
    case Engine::kFp16x3:
      return {TilesSm80Fp16x3::kShapes, TilesSm80Fp16x3::kSize};
    case Engine::kSimt:
      break;
  }
  return {nullptr, 0};
}

// 16-bit operands whose rows are not 16-byte aligned: one tile each (4-byte cp.async, and plain
// loads for 2 bytes, which cp.async cannot move: those pipeline in two stages only). There is no
// choice between them, so their time does not matter.
struct NarrowTilesSm80 {
  using Narrow4 = TileSm80<128, 64, 64, 2, 2, 4, Schedule::kDataParallel>;
  using Narrow2 = TileSm80<128, 64, 64, 2, 2, 2, Schedule::kDataParallel>;
};

}  // namespace cutlass_fused
