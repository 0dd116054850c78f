// Chooses an SM90 tile by a cost over the table. Plain host integers: unit-tested without a GPU.
#pragma once

#include <iterator>

#include "cutlass_fused/plan/heuristic.hpp"
#include "cutlass_fused/gemm/sm90/raster.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

// Output tiles along the rows and the columns of a kernel's problem.
struct TileGrid {
  int64_t m, n;
};

inline TileGrid count_tiles(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  bool const swapped = tile.operands == Operands::kSwapped;
  return {ceil_div(swapped ? n : m, tile.m), ceil_div(swapped ? m : n, tile.n)};
}

// Of a tile, fitted to measurements: the nanoseconds of one of its stages on a busy SM, and those
// of a tile beside its stages.
struct TileTimes {
  int stage_ns, tile_ns;
};

// In the order of the table.
constexpr TileTimes kTileTimesSm90[] = {
    {315, 936},  {495, 2361}, {329, 405},  {568, 4266}, {875, 3169}, {440, 1080},
    {330, 972},  {155, 1645}, {210, 1635}, {147, 1600}, {249, 1635}, {351, 2500},
    {329, 2130}, {426, 2195}, {344, 3951}, {485, 2306}, {340, 2500},
};
static_assert(std::size(kTileTimesSm90) == sm90::Tiles::kSize);

constexpr TileTimes kTileTimesFp16x3[] = {
    {682, 2475}, {370, 818}, {223, 2656}, {334, 1751}, {237, 1629}, {391, 1667}, {350, 2600},
};
static_assert(std::size(kTileTimesFp16x3) == sm90::TilesFp16x3::kSize);

constexpr TileTimes kTileTimesFp16x1[] = {
    {563, 4396}, {303, 809},  {404, 1313}, {400, 1400},
    {443, 897},  {270, 1404}, {414, 1822}, {340, 2600},
};
static_assert(std::size(kTileTimesFp16x1) == sm90::TilesFp16x1::kSize);

template <class Math>
constexpr TileTimes const* kTileTimesSm90For = Math::kEngine == Engine::kFp16x3   ? kTileTimesFp16x3
                                               : Math::kEngine == Engine::kFp16x1 ? kTileTimesFp16x1
                                                                                  : kTileTimesSm90;

// Of a persistent kernel: along M while that is short, so that blocks that run at the same time
// share the operand of that side as a whole. Else along N in panels, so that these blocks form a
// square: the widest panels that CUTLASS, which rounds both sides up to whole ones, makes hardly
// any tiles of nothing for. Measured: 0.7% off the best of m1, n2, n4 and n8, on the average.
inline Raster choose_order(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  constexpr int64_t kShort = 16, kMostEmptyPercent = 1;
  TileGrid const grid = count_tiles(tile, m, n);
  if (grid.m <= kShort) return {Raster::kAlongM, 1};
  auto const rounded = [&](int panel) {
    int64_t const rows = tile.cluster_m * panel, columns = tile.cluster_n * panel;
    return ceil_div(grid.m, rows) * rows * (ceil_div(grid.n, columns) * columns);
  };
  for (int panel : {8, 4, 2}) {
    if (rounded(panel) * 100 <= rounded(1) * (100 + kMostEmptyPercent)) {
      return {Raster::kAlongN, panel};
    }
  }
  return {Raster::kAlongN, 1};
}

// Estimated nanoseconds of the whole product with this tile, launch apart. Only comparisons matter:
// these constants and the tiles' times are fitted to 150 shapes of bf16, each timed with most tiles
// that suit it on an H200, of a table with five tiles more. Where the one chosen was (145) it takes
// 1.007 times the fastest in the geometric mean, at worst 1.08 times (M=96 N=4096 K=4096); without
// the five the estimates are 0.2% higher. The last tile's times are a guess.
//
// The busiest SM works through its share of the blocks, stage after stage. Two blocks on one SM
// share it, and wait for memory in turns. Beside that stands the time to read the operands and
// write y once; the two overlap for the most part. Slices of K cost the exchange of their sums, and
// clusters of many blocks leave SMs idle, where they do not fill a GPU's parts. Of two tiles that
// differ in which operand is theirs the better one has fewer tiles along M.
inline int64_t tile_cost_sm90(TileShapeSm90 const& tile, TileTimes const& times,
                              Raster const& raster, Problem const& problem, Device const& device) {
  int64_t const bytes_per_ns = is_split(tile.schedule) ? 4313 : 4287;  // of memory
  constexpr int64_t kExposedPercent = 64;                              // of the shorter of the two
  constexpr int64_t kExchangeNs = 555, kSliceNs = 296;
  constexpr int64_t kIdleSms = 3;  // for each slice, from three on
  constexpr int64_t kTallPercent = 1;
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  int64_t const slices = raster.direction == Raster::kAlongK ? raster.count : 1;
  int64_t const blocks = ceil_div(grid.m, tile.cluster_m) * tile.cluster_m *
                         (ceil_div(grid.n, tile.cluster_n) * tile.cluster_n) * slices;
  int64_t const sms = std::max<int64_t>(1, device.sm_count - (slices > 2 ? kIdleSms * slices : 0));
  int64_t const k_bytes = problem.k * problem.element_bytes;
  int64_t const block_ns = ceil_div(ceil_div(k_bytes, tile.bytes_k), slices) * times.stage_ns;
  bool const two = tile.schedule == ScheduleSm90::kSplitPair;
  int64_t const stages_ns =
      two ? std::max(sms, blocks) * block_ns / sms : ceil_div(blocks, sms) * block_ns;
  int64_t const work_ns = stages_ns + ceil_div(blocks, sms * (two ? 2 : 1)) * times.tile_ns +
                          (slices > 1 ? kExchangeNs + slices * kSliceNs : 0);
  int const output_bytes = splits_rows(problem.engine) ? 4 : problem.element_bytes;
  int64_t const y_bytes = problem.m * problem.n * output_bytes;
  int64_t const memory_ns = ((problem.m + problem.n) * k_bytes + y_bytes) / bytes_per_ns;
  int64_t const cost_ns =
      std::max(work_ns, memory_ns) + std::min(work_ns, memory_ns) * kExposedPercent / 100;
  bool const tall = is_persistent(tile.schedule) && grid.m > grid.n;
  return tall ? cost_ns + cost_ns / 100 * kTallPercent : cost_ns;
}

// The best way through the problem with this tile, and what it costs.
struct Estimate {
  Raster raster;
  int64_t cost;
};

template <class Math>
Estimate estimate_tile(int index, Problem const& problem, Device const& device) {
  TileShapeSm90 const& tile = TilesSm90For<Math>::type::kShapes[index];
  TileTimes const& times = kTileTimesSm90For<Math>[index];
  if (!is_split(tile.schedule)) {
    Raster const raster = choose_order(tile, problem.m, problem.n);
    return {raster, tile_cost_sm90(tile, times, raster, problem, device)};
  }
  Estimate best{{}, std::numeric_limits<int64_t>::max()};
  // K is cut only as far as all blocks fit on the GPU at once.
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  int64_t const slots = device.sm_count * (tile.schedule == ScheduleSm90::kSplitPair ? 2 : 1);
  for (int slices = 1; slices <= kMostSlices; ++slices) {
    if (slices > 1 && grid.m * grid.n * slices > slots) break;
    Raster const raster{Raster::kAlongK, slices};
    int64_t const cost = tile_cost_sm90(tile, times, raster, problem, device);
    if (cost < best.cost) best = {raster, cost};
  }
  return best;
}

}  // namespace cutlass_fused
