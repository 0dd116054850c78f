// The ArchSpec of SM80 kernels: which problems their tiles serve, and what they cost. Plain host
// integers.
#pragma once

#include <algorithm>

#include "cutlass_fused/gemm/sm80/tiles.hpp"
#include "cutlass_fused/plan/arch_spec.hpp"

namespace cutlass_fused {

// The widest of 16, 4, 2 bytes that every row of both operands starts and ends on. The end counts
// too: a load that straddles the end of a row would read the next one.
inline int operand_alignment(Problem const& problem) {
  int const bytes = problem.operand_bytes();
  auto const narrowest = [](int alignment, int64_t distance) {
    while (distance % alignment != 0) alignment /= 2;
    return alignment;
  };
  int alignment = std::min(problem.x.alignment, problem.weight.alignment);
  alignment = narrowest(alignment, problem.multiplied_k() * bytes);
  if (problem.m > 1) alignment = narrowest(alignment, problem.x.ld * bytes);
  if (problem.n > 1) alignment = narrowest(alignment, problem.weight.ld * bytes);
  return alignment >= 16 ? 16 : alignment >= 4 ? 4 : 2;
}

// Estimated nanoseconds of the whole product with this tile, launch apart. Only comparisons between
// tiles matter: these constants and the table's times are fitted to products that were timed with
// every tile on an H200. At 85 shapes, with one product or three, the tile chosen there takes 1.01
// times as long as the best one in the geometric mean, and 1.14 at most.
//
// The busiest SM works through ceil(tiles / SMs) tiles, stage after stage. How many blocks are
// resident hardly changes the time of a stage: one is enough to keep tensor cores or shared memory
// busy. Stream-K gives every SM the same share of all stages, and pays for exchanging partial sums.
// Beside that stands the time to read the operands once; the two overlap for the most part.
inline int64_t tile_cost(TileShape const& tile, Problem const& problem, Device const& device) {
  constexpr int64_t kExchangeNs = 4300;    // stream-K: flags to clear and to wait for, ...
  constexpr int64_t kExchangeOutputs = 2;  // ... and outputs of partial sums per nanosecond
  constexpr int64_t kBytesPerNs = 2800;    // of memory
  constexpr int64_t kExposedPercent = 30;  // of the work, where memory takes longer
  int64_t const tiles = ceil_div(problem.m, tile.m) * ceil_div(problem.n, tile.n);
  int64_t const k_bytes = std::max<int64_t>(1, problem.multiplied_k() * problem.operand_bytes());
  int64_t const stages = ceil_div(k_bytes, tile.bytes_k);
  int64_t const sms = device.sm_count;

  bool const stream_k = tile.schedule == Schedule::kStreamK;
  int64_t const share = stream_k ? ceil_div(tiles * stages, sms) : ceil_div(tiles, sms) * stages;
  int64_t const work_ns = share * tile.stage_ns;
  int64_t const memory_ns = (problem.m + problem.n) * k_bytes / kBytesPerNs;
  int64_t const exchange_ns = stream_k ? kExchangeNs + tile.m * tile.n / kExchangeOutputs : 0;
  return std::max(work_ns, memory_ns) + work_ns * kExposedPercent / 100 + exchange_ns;
}

inline ArchSpec const& spec_sm80() {
  static constexpr ArchSpec kSpec = with_open(
      {ArchId::kSm80, "sm80", [](MathId math) { return tiles_sm80(math).count; },
       [](MathId math, int tile) { return tiles_sm80(math).shapes[tile].name(); },
       [](Problem const& problem) {
         if (splits_rows(problem.math)) return ReadBy::kTiles;
         int const alignment = operand_alignment(problem);
         return alignment == 16  ? ReadBy::kTiles
                : alignment == 4 ? ReadBy::kNarrow4
                                 : ReadBy::kNarrow2;
       },
       [](int tile, Problem const& problem, Device const& device) {
         return tiles_sm80(problem.math).shapes[tile].shared_memory() <= device.shared_memory;
       },
       [](int, Problem const&, Device const&) { return true; },
       [](int tile, Problem const& problem, Device const& device) {
         return Estimate{{}, tile_cost(tiles_sm80(problem.math).shapes[tile], problem, device)};
       },
       [](int, Problem const&, int64_t, Device const&) -> int64_t { return 0; },
       [](MathId, int, Raster const&) { return false; },
       [](MathId, int) { return std::vector<char const*>{}; },
       [](MathId math, int tile) {
         TileShape const& shape = tiles_sm80(math).shapes[tile];
         return TileSize{shape.m, shape.n};
       }});
  return kSpec;
}

}  // namespace cutlass_fused
