// Which problems the tiles of SM90 kernels serve, and what they cost. Plain host integers.
#pragma once

#include <algorithm>
#include <limits>

#include "cutlass_fused/gemm/sm90/tiles.hpp"
#include "cutlass_fused/plan/arch_spec.hpp"
#include "cutlass_fused/gemm/tma_rows.hpp"

namespace cutlass_fused {

// Output tiles along the rows and the columns of a kernel's problem.
struct TileGrid {
  int64_t m, n;
};

inline TileGrid count_tiles(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  bool const swapped = tile.operands == Operands::kSwapped;
  return {ceil_div(swapped ? n : m, tile.m), ceil_div(swapped ? m : n, tile.n)};
}

// Whether CUTLASS's kernels, which count in 32 bits, can count the rows and columns up to the end
// of the widest panel.
inline bool can_count(TileShapeSm90 const& tile, Problem const& problem) {
  constexpr int64_t kWidestPanel = 8, kEnd = int64_t(1) << 31;
  bool const swapped = tile.operands == Operands::kSwapped;
  int64_t const rows = kWidestPanel * tile.cluster_m * tile.m;
  int64_t const columns = kWidestPanel * tile.cluster_n * tile.n;
  return ceil_div(swapped ? problem.n : problem.m, rows) * rows <= kEnd &&
         ceil_div(swapped ? problem.m : problem.n, columns) * columns <= kEnd;
}

// Whether this tile's kernel can compute the problem.
inline bool can_serve(TileShapeSm90 const& tile, Problem const& problem) {
  DataType const type = spec_of(problem.math).type;
  bool const along_n = splits_rows(problem.math) && problem.weight.major == Major::kMn;
  if (along_n && tile.operands != Operands::kSwapped) return false;
  if (tile.output == Output::kTma && !tma_writes_rows(problem, type)) return false;
  if (tile.output == Output::kRows && problem.y_type != type) return false;
  if (slices_k(tile.schedule) && problem.y_type != type && !can_promote(tile.n)) return false;
  if (!slices_k(tile.schedule) && !can_count(tile, problem)) return false;
  // Not persistent: one block to a tile, on a grid of at most 65535 along y.
  int64_t const columns = tile.operands == Operands::kSwapped ? problem.m : problem.n;
  return is_persistent(tile.schedule) || ceil_div(columns, tile.n) <= 65535;
}

// Kernels that slice K share no loads between blocks, of which the estimate knows nothing: with
// more than a few tiles of rows they took up to 2.9 times as long as the bare cuBLAS product. Up to
// four do no harm where all blocks run at once. Nor do more where results of 16-bit matrices are
// fp32, which few other kernels write: a softmax of 1024 x 768 x 512 behind them takes 14.4 us for
// 16.1, one of 1024 x 768 x 4096 28.0 for 34.2 (H200).
inline bool is_worth_an_estimate(TileShapeSm90 const& tile, Problem const& problem,
                                 Device const& device) {
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  bool const has_few_others =
      problem.engine() == Engine::kPlain && problem.y_type == DataType::kFloat32;
  return !slices_k(tile.schedule) || grid.n <= 2 ||
         ((grid.n <= 4 || has_few_others) && grid.m * grid.n <= device.sm_count);
}

// Where y is a copy for TMA to write, a tile that needs none has to beat the others' time with the
// copy back. Measured: 3.9 us for y of 2 MB, 22.5 us for 33 MB.
inline int64_t cost_of_copying_back(TileShapeSm90 const& tile, Problem const& problem) {
  constexpr int64_t kLaunchNs = 2500, kBytesPerNs = 3300;  // read and written
  if (!problem.copies_y || tile.output != Output::kTma) return 0;
  return kLaunchNs + 2 * problem.y_bytes() / kBytesPerNs;
}

// The order of a persistent kernel. It goes along M while that is short, so that blocks that run at
// the same time share the operand of that side as a whole. Else it goes along N in panels, so that
// these blocks form a square. CUTLASS rounds both sides up to whole panels, and the tiles of
// nothing take as long as others. The rest is measured at 16384 x 4096 x 4096 and 16384 x 11008 x
// 4096, the swapped pingpong tile in us: 705 in panels of 8, 711 of 4, 731 of 2; 1994 in panels of
// 4 and 2029 of 2, both with two tiles in 86 too many, and 2081 of 1 without.
inline Raster choose_order(TileShapeSm90 const& tile, int64_t m, int64_t n) {
  constexpr int64_t kShort = 16;
  struct Panel {
    int count;
    int64_t lost_permille;  // to reading more from L2
  };
  constexpr Panel kPanels[] = {{8, 0}, {4, 10}, {2, 20}, {1, 60}};
  TileGrid const grid = count_tiles(tile, m, n);
  if (grid.m <= kShort) return {Raster::kAlongM, 1};
  Raster best{Raster::kAlongN, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (auto const& [count, lost_permille] : kPanels) {
    int64_t const rows = tile.cluster_m * count, columns = tile.cluster_n * count;
    int64_t const tiles = ceil_div(grid.m, rows) * rows * (ceil_div(grid.n, columns) * columns);
    int64_t const cost = tiles * (1000 + lost_permille);
    if (cost < least) {
      best.count = count;
      least = cost;
    }
  }
  return best;
}

// A product of 16-bit numbers that takes long meets the limit of the GPU's power, it seems, and by
// less with the swapped pingpong tile. One after another, six of six products of 0.7 to 2.9 ms took
// 2 to 6% less time with it than with cooperative tiles on an H200; four of 0.09 to 0.33 ms took
// from 1% less to 3% more. In turns with other kernels 16384 x 4096 x 4096 took 0.5 to 1.3% more,
// now that cooperative tiles read vectors ahead: it reads 1.4 times as much from L2, at a lower
// clock. In narrower panels it reads more still, and spares nothing: 16384 x 11008 x 4096, whose 86
// tiles of features no panel of eight divides, took 1994 us with it in panels of four, and 1903
// with 256x192 cooperative. On an H100, whose memory gives two thirds, it took 1.06 to 1.31 times
// as long as cooperative 128x256 at six of seven shapes with a K of 8192 or 11008 (0.99 at 4096 x
// 8192 x 8192), and 0.96 at 16384 x 4096 x 4096. What is between the two was not timed, and is
// taken for an H100.
inline int64_t cost_of_power(TileShapeSm90 const& tile, Problem const& problem, int64_t cost_ns,
                             Device const& device) {
  constexpr int64_t kLongNs = 600000, kPercent = 12, kLongK = 4096;
  Raster const order = choose_order(tile, problem.m, problem.n);
  bool const has_memory = problem.k <= kLongK || device.memory_gb_s > Device::kTimedGbS * 9 / 10;
  bool const spares = tile.schedule == ScheduleSm90::kPingpong &&
                      tile.operands == Operands::kSwapped && has_memory &&
                      (order.direction == Raster::kAlongM || order.count == 8);
  return splits_rows(problem.math) || cost_ns <= kLongNs || spares ? 0 : cost_ns * kPercent / 100;
}

// Estimated nanoseconds of the whole product with this tile, launch apart. Only comparisons matter.
//
// These constants and the tiles' times are fitted to 150 shapes of bf16. An H200 ran each shape
// with most of the tiles that suit it. At 145 shapes the tile that the estimates choose was among
// those timed: it takes 1.007 times as long as the fastest in the geometric mean, and 1.08 times at
// worst (M=96 N=4096 K=4096). The table had five more tiles then; the estimates without them are
// 0.2% higher. Nobody timed the table's last tile: its times are a guess.
//
// The busiest SM works through its share of the blocks, stage after stage. Two blocks on one SM
// share it, and wait for memory in turns. Beside that stands the time to read the operands and
// write y once; the two overlap for the most part. Slices of K cost the exchange of their sums, and
// clusters of many blocks leave SMs idle, where they do not fill a GPU's parts. Of two tiles that
// differ in which operand is theirs the better one has fewer tiles along M.
inline int64_t tile_cost_sm90(TileShapeSm90 const& tile, Raster const& raster,
                              Problem const& problem, Device const& device) {
  int64_t const bytes_per_ns = slices_k(tile.schedule) ? 4313 : 4287;  // of memory
  constexpr int64_t kExposedPercent = 64;                              // of the shorter of the two
  constexpr int64_t kExchangeNs = 555, kSliceNs = 296;
  constexpr int64_t kIdleSms = 3;  // for each slice, from three on
  constexpr int64_t kTallPercent = 1;
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  int64_t const slices = raster.direction == Raster::kAlongK ? raster.count : 1;
  int64_t const blocks = ceil_div(grid.m, tile.cluster_m) * tile.cluster_m *
                         (ceil_div(grid.n, tile.cluster_n) * tile.cluster_n) * slices;
  int64_t const sms = std::max<int64_t>(1, device.sm_count - (slices > 2 ? kIdleSms * slices : 0));
  int64_t const k_bytes = problem.multiplied_k() * problem.operand_bytes();
  int64_t const block_ns = ceil_div(ceil_div(k_bytes, tile.bytes_k), slices) * tile.times.stage_ns;
  bool const two = tile.schedule == ScheduleSm90::kSlicesPair;
  int64_t const stages_ns =
      two ? std::max(sms, blocks) * block_ns / sms : ceil_div(blocks, sms) * block_ns;
  int64_t const work_ns = stages_ns + ceil_div(blocks, sms * (two ? 2 : 1)) * tile.times.tile_ns +
                          (slices > 1 ? kExchangeNs + slices * kSliceNs : 0);
  int const output_bytes = splits_rows(problem.math) ? 4 : problem.operand_bytes();
  int64_t const y_bytes = problem.m * problem.n * output_bytes;
  int64_t const memory_ns = ((problem.m + problem.n) * k_bytes + y_bytes) / bytes_per_ns;
  int64_t const cost_ns =
      std::max(work_ns, memory_ns) + std::min(work_ns, memory_ns) * kExposedPercent / 100;
  bool const tall = is_persistent(tile.schedule) && grid.m > grid.n;
  return tall ? cost_ns + cost_ns / 100 * kTallPercent : cost_ns;
}

inline Estimate estimate_tile(TileShapeSm90 const& tile, Problem const& problem,
                              Device const& device) {
  if (!slices_k(tile.schedule)) {
    Raster const raster = choose_order(tile, problem.m, problem.n);
    return {raster, tile_cost_sm90(tile, raster, problem, device)};
  }
  Estimate best{{}, std::numeric_limits<int64_t>::max()};
  // K is cut only as far as all blocks fit on the GPU at once.
  TileGrid const grid = count_tiles(tile, problem.m, problem.n);
  int64_t const slots = device.sm_count * (tile.schedule == ScheduleSm90::kSlicesPair ? 2 : 1);
  for (int slices = 1; slices <= kMostSlices; ++slices) {
    if (slices > 1 && grid.m * grid.n * slices > slots) break;
    Raster const raster{Raster::kAlongK, slices};
    int64_t const cost = tile_cost_sm90(tile, raster, problem, device);
    if (cost < best.cost) best = {raster, cost};
  }
  return best;
}

// What a bare product of 16-bit numbers takes beside cuBLAS's, fitted with that
// (plan/costs/cublas_16_bit.hpp). The estimate lacks the launch, which is longer of a persistent
// kernel, and says too much of work that overlaps; a long one runs at a lower clock. Tiles of a
// short K do not hide how they are written.
inline int64_t cost_of_tile_sm90(TileShapeSm90 const& tile, Problem const& problem,
                                 int64_t estimate, Device const& device) {
  constexpr int64_t kLongNs = 60000, kLongPercent = 48, kShortK = 128, kTile = 128;
  constexpr int64_t kPersistentNs = 2903, kPersistentPermille = 674, kWaveNs = 574;
  constexpr int64_t kSingleNs = 961, kSinglePermille = 775;
  int64_t const longer_ns = std::max<int64_t>(estimate - kLongNs, 0) * kLongPercent / 100;
  if (!is_persistent(tile.schedule)) {
    return kSingleNs + estimate * kSinglePermille / 1000 + longer_ns;
  }
  int64_t const tiles = ceil_div(problem.m, kTile) * ceil_div(problem.n, kTile);
  int64_t const waves = problem.k <= kShortK ? ceil_div(tiles, int64_t(device.sm_count)) : 0;
  return kPersistentNs + estimate * kPersistentPermille / 1000 + longer_ns + waves * kWaveNs;
}

// Copies of operands, and a y whose rows begin anywhere.
inline int64_t cost_of_any_rows(TileShapeSm90 const& tile, Problem const& problem,
                                Copies const& copies) {
  constexpr int64_t kCopyNs = 1621, kCopyPsOfRow = 70, kAnyRowsNs = 1690, kPsOfAnyRow = 565;
  int64_t const rows = (copies.x ? problem.m : 0) + (copies.weight ? problem.n : 0);
  return (copies.operands() ? kCopyNs + rows * kCopyPsOfRow / 1000 : 0) +
         (tile.output == Output::kRows ? kAnyRowsNs + problem.m * kPsOfAnyRow / 1000 : 0);
}

inline int64_t cost_of_bare_sm90(TileShapeSm90 const& tile, Problem const& problem,
                                 Copies const& copies, int64_t estimate, Device const& device) {
  return cost_of_tile_sm90(tile, problem, estimate, device) +
         cost_of_any_rows(tile, problem, copies);
}

// Whether the tile's kernel can take a problem that way.
inline bool suits(Raster const& raster, TileShapeSm90 const& tile) {
  return slices_k(tile.schedule) == (raster.direction == Raster::kAlongK) &&
         raster.count <= kMostSlices;
}

}  // namespace cutlass_fused
