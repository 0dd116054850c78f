// Chooses a tile by a cost over the table. Plain host integers: unit-tested without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cutlass_fused/gemm/sm80/tiles.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

struct Problem {
  int64_t m, n, k;    // of the operands that are multiplied
  int element_bytes;  // of these operands
  Engine engine;
};

template <class Math>
Problem make_problem(GemmArgs const& gemm) {
  return {gemm.m, gemm.n, multiplied_k<Math>(gemm.k), size_of(operand_type<Math>), Math::kEngine};
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
  int64_t const k_bytes = std::max<int64_t>(1, problem.k * problem.element_bytes);
  int64_t const stages = ceil_div(k_bytes, tile.bytes_k);
  int64_t const sms = device.sm_count;

  bool const stream_k = tile.schedule == Schedule::kStreamK;
  int64_t const share = stream_k ? ceil_div(tiles * stages, sms) : ceil_div(tiles, sms) * stages;
  int64_t const work_ns = share * tile.stage_ns;
  int64_t const memory_ns = (problem.m + problem.n) * k_bytes / kBytesPerNs;
  int64_t const exchange_ns = stream_k ? kExchangeNs + tile.m * tile.n / kExchangeOutputs : 0;
  return std::max(work_ns, memory_ns) + work_ns * kExposedPercent / 100 + exchange_ns;
}

// The index of the cheapest tile that fits the device's shared memory. Equal costs go to the tile
// that stands first in the table.
template <class Tiles>
int choose_tile(Problem const& problem, Device const& device) {
  int best = -1;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < Tiles::kSize; ++i) {
    TileShape const& tile = Tiles::kShapes[i];
    if (tile.shared_memory() > device.shared_memory) continue;
    int64_t const cost = tile_cost(tile, problem, device);
    if (cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace cutlass_fused
