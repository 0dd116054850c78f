// Which tile of the tf32x3 kernels serves a product, and what it costs. Plain host integers.
#pragma once

#include <algorithm>
#include <limits>

#include "cutlass_fused/gemm/tf32x3/tiles.hpp"
#include "cutlass_fused/plan/problem.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// K may be cut into as many slices as blocks can form a cluster.
constexpr int kMostSlicesTf32x3 = 8;

// Estimated nanoseconds of the whole product with this tile, its launch in a CUDA graph among them.
// The constants and the tiles' times are fitted to 108 products, in three layouts, that were timed
// with every tile on an H100, by kernels that did not scale numbers yet. The tile chosen took 1.01
// times as long as the best one in the geometric mean.
//
// SMs work through waves of resident blocks, unless L2 cannot give them their operands so fast. The
// last wave may leave SMs with few blocks, whose stages then take their latency. Clusters of more
// than two blocks leave SMs idle.
inline int64_t tile_cost_tf32x3(TileShapeTf32x3 const& tile, int slices, Problem const& problem,
                                Device const& device) {
  constexpr int64_t kLaunchNs = 438, kExchangeNs = 1037, kSliceNs = 181, kIdleSms = 3;
  constexpr int64_t kL2BytesPerNs = 6242, kBytesPerNs = 4800, kExposedPercent = 34;
  int64_t const tiles = ceil_div(problem.m, tile.m) * ceil_div(problem.n, tile.n) * problem.batch;
  int64_t const blocks = tiles * slices;
  int64_t const sms = std::max<int64_t>(1, device.sm_count - (slices > 2 ? kIdleSms * slices : 0));
  int64_t const stages = ceil_div(ceil_div(problem.k, tile.k), slices);
  auto const wave_ns = [&](int64_t blocks_of_sm) {
    return tile.tile_ns + stages * std::max<int64_t>(tile.latency_ns, blocks_of_sm * tile.stage_ns);
  };
  int64_t const slots = sms * tile.blocks_per_sm, rest = blocks % slots;
  int64_t const waves_ns =
      blocks / slots * wave_ns(tile.blocks_per_sm) + (rest > 0 ? wave_ns(ceil_div(rest, sms)) : 0);
  int64_t const work_ns =
      std::max(waves_ns, tiles * (tile.m + tile.n) * problem.k * 4 / kL2BytesPerNs);
  int64_t const bytes =
      4 * ((problem.m + problem.n) * problem.k) + problem.m * problem.n * size_of(problem.y_type);
  int64_t const memory_ns = bytes * problem.batch / kBytesPerNs;
  return kLaunchNs + std::max(work_ns, memory_ns) +
         std::min(work_ns, memory_ns) * kExposedPercent / 100 +
         (slices > 1 ? kExchangeNs + slices * kSliceNs : 0);
}

// The cheapest tile, and into how many slices K is cut; tile -1: none serves.
struct ChoiceTf32x3 {
  int tile = -1, slices = 1;
  int64_t cost_ns = std::numeric_limits<int64_t>::max();
};

inline bool can_serve(TileShapeTf32x3 const& tile, int slices, Problem const& problem,
                      Device const& device) {
  // Blocks of a cluster exchange their sums; GPUs before 9.0 have no clusters.
  if (slices > 1 && (device.code < 90 || slices > ceil_div(problem.k, tile.k))) return false;
  int64_t const blocks = ceil_div(problem.m, tile.m) * ceil_div(problem.n, tile.n) * slices;
  return tile.shared_bytes <= device.shared_memory && blocks < (int64_t(1) << 31);
}

// Whether K may be cut that way.
inline bool suits_tf32x3(Raster const& raster) {
  return raster.direction == Raster::kAlongK && raster.count <= kMostSlicesTf32x3 &&
         (raster.count & (raster.count - 1)) == 0;
}

inline ChoiceTf32x3 choose_tf32x3(Problem const& problem, Device const& device) {
  ChoiceTf32x3 best;
  for (int tile = 0; tile < TilesTf32x3::kSize; ++tile) {
    TileShapeTf32x3 const& shape = TilesTf32x3::kShapes[tile];
    for (int slices = 1; slices <= kMostSlicesTf32x3; slices *= 2) {
      if (!can_serve(shape, slices, problem, device)) break;
      int64_t const cost = tile_cost_tf32x3(shape, slices, problem, device);
      if (cost < best.cost_ns) best = {tile, slices, cost};
    }
  }
  return best;
}

}  // namespace cutlass_fused
