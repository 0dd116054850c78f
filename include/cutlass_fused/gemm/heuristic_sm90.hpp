// Chooses an SM90 tile by a cost over the table. Plain host integers: unit-tested without a GPU.
#pragma once

#include "cutlass_fused/gemm/heuristic.hpp"
#include "cutlass_fused/gemm/raster_sm90.hpp"
#include "cutlass_fused/gemm/tiles_sm90.hpp"

namespace cutlass_fused {

// Output tiles along the rows and the columns of a kernel's problem.
struct TileGrid {
  int64_t m, n;
};

inline TileGrid count_tiles(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  bool const swapped = tile.operands == Operands::kSwapped;
  return {ceil_div(swapped ? n : m, tile.m), ceil_div(swapped ? m : n, tile.n)};
}

// Along the shorter side, so that blocks that run at the same time share the operand of that side
// as a whole and read the other one once; up to 32 tiles that operand stays in L2.
inline Raster choose_raster(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  TileGrid const grid = count_tiles(tile, m, n);
  if (grid.m <= std::min<int64_t>(grid.n, 32)) return {Raster::kAlongM, 1};
  return {Raster::kAlongN, grid.n <= 8 ? 4 : 2};
}

// Estimated nanoseconds of the whole product with this tile, launch apart. Only comparisons between
// tiles matter: these constants and the table's times are fitted to 104 shapes of bf16, each timed
// with the tiles that suit it on an H200. The tile chosen there takes 1.01 times as long as the
// best one in the geometric mean.
//
// The busiest SM works through ceil(tiles / SMs) tiles, stage after stage. Beside that stands the
// time to read the operands and write y once; the two overlap for the most part.
inline int64_t tile_cost_sm90(TileShapeSm90 const& tile, Problem const& problem,
                              Device const& device) {
  constexpr int64_t kBytesPerNs = 4200;    // of memory
  constexpr int64_t kExposedPercent = 46;  // of the shorter of the two
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  int64_t const tiles = ceil_div(grid.m, tile.cluster_m) * tile.cluster_m *
                        (ceil_div(grid.n, tile.cluster_n) * tile.cluster_n);
  int64_t const k_bytes = problem.k * problem.element_bytes;
  int64_t const tile_ns = ceil_div(k_bytes, tile.bytes_k) * tile.stage_ns + tile.tile_ns;
  int64_t const work_ns = ceil_div(tiles, device.sm_count) * tile_ns;
  int64_t const y_bytes = problem.m * problem.n * problem.element_bytes;
  int64_t const memory_ns = ((problem.m + problem.n) * k_bytes + y_bytes) / kBytesPerNs;
  return std::max(work_ns, memory_ns) + std::min(work_ns, memory_ns) * kExposedPercent / 100;
}

}  // namespace cutlass_fused
