// Which tile of the tf32x3 kernels serves a product, and what it costs. Plain host integers.
#pragma once

#include <algorithm>
#include <limits>

#include "cutlass_fused/gemm/tf32x3/shares.hpp"
#include "cutlass_fused/plan/problem.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// Whether its rows, or columns, begin at multiples of 16 bytes.
inline bool has_whole_pieces(Rows const& rows) {
  return rows.alignment % 16 == 0 && rows.ld % 4 == 0;
}

// Estimated nanoseconds of the whole product with this tile, its launch in a CUDA graph among them.
// The constants and the times of the tiles for every GPU are fitted to 99 products, in three
// layouts, that were timed with every tile and number of shares on an H100: the tile chosen
// took 1.002 times as long as the best one in the geometric mean, and 1.04 times at most. Those of
// parts and of the tiles for 9.0 are fitted to 66 products on an H200: 1.011, and 1.08 at most.
//
// SMs work through waves of resident blocks, unless L2 cannot give them their operands so fast. The
// last wave may leave SMs with few blocks, whose stages then take their latency. Clusters of more
// than two blocks leave SMs idle.
//
// x_bytes: of a number of x; 2 where the kernel is one of gemm/mixed.
inline int64_t tile_cost_tf32x3(TileShapeTf32x3 const& tile, int shares, Problem const& problem,
                                Device const& device, int x_bytes = 4) {
  constexpr int64_t kLaunchNs = 222, kExchangeNs = 1037, kSliceNs = 119, kIdleSms = 3;
  constexpr int64_t kPartsNs = 1200, kPartBytesPerNs = 5000;
  constexpr int64_t kL2BytesPerNs = 7133, kBytesPerNs = 3219, kExposedPercent = 48;
  constexpr int64_t kTf32Percent = 67;    // of the time of three products
  constexpr int64_t kMixedPercent = 80;   // of two, and of one operand that is not split
  constexpr int64_t kPiecesPercent = 18;  // set by hand, as the 67 and the 80
  int64_t const tiles = count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch);
  auto const [slices, parts] = share_out_tf32x3(tile, shares, tiles, device);
  int64_t const sms = std::max<int64_t>(1, device.sm_count - (slices > 2 ? kIdleSms * slices : 0));
  int64_t const stages = ceil_div(ceil_div(problem.k, tile.k), shares);
  // Rows that do not begin at multiples of 16 bytes are copied a number at a time, and so stored;
  // they take three products under any precision.
  bool const whole = has_whole_pieces(problem.x) && has_whole_pieces(problem.weight);
  bool const is_one_product = whole && problem.engine() == Engine::kFp16x1;
  int64_t const percent = x_bytes == 2 ? kMixedPercent : is_one_product ? kTf32Percent : 100;
  int64_t const stage_ns = tile.stage_ns * percent / 100;
  auto const stages_ns = [&](int64_t blocks_of_sm) {
    return stages * std::max<int64_t>(tile.latency_ns, blocks_of_sm * stage_ns);
  };
  int64_t const blocks = tiles * shares, slots = sms * tile.blocks_per_sm, rest = blocks % slots;
  int64_t const further = std::max<int64_t>(0, ceil_div(blocks, slots) - 1);
  int64_t const waves_ns = tile.tile_ns + further * (shares == 1 ? tile.next_ns : tile.tile_ns) +
                           blocks / slots * stages_ns(tile.blocks_per_sm) +
                           (rest > 0 ? stages_ns(ceil_div(rest, sms)) : 0);
  int64_t const slowed =
      100 + (whole ? 0 : kPiecesPercent) + (problem.y.ld % 4 == 0 ? 0 : kPiecesPercent);
  int64_t const l2_bytes = tiles * (tile.m * x_bytes + tile.n * 4) * problem.k;
  int64_t const work_ns = std::max(waves_ns * slowed / 100, l2_bytes / kL2BytesPerNs);
  int64_t const bytes = (problem.m * x_bytes + problem.n * 4) * problem.k * problem.batch +
                        problem.m * problem.n * size_of(problem.y_type) * problem.batch;
  int64_t const partial_bytes = 8 * parts * tiles * tile.m * tile.n;  // written, and read
  int64_t const memory_ns = bytes / kBytesPerNs;
  return kLaunchNs + std::max(work_ns, memory_ns) +
         std::min(work_ns, memory_ns) * kExposedPercent / 100 +
         (slices > 1 ? kExchangeNs + slices * kSliceNs : 0) +
         (parts > 1 ? kPartsNs + partial_bytes / kPartBytesPerNs : 0);
}

// The cheapest tile, and into how many shares K is cut; tile -1: none serves.
struct ChoiceTf32x3 {
  int tile = -1, shares = 1;
  int64_t cost_ns = std::numeric_limits<int64_t>::max();
};

inline bool can_serve(TileShapeTf32x3 const& tile, int shares, Problem const& problem,
                      Device const& device) {
  if (shares > ceil_div(problem.k, tile.k) || !device.archs.has(tile.arch)) return false;
  // Tiles for newer GPUs read whole pieces, and write fp32. They take three products, of which
  // "tf32" needs one.
  bool const is_whole = has_whole_pieces(problem.x) && has_whole_pieces(problem.weight);
  bool const is_served = is_whole && problem.y_type == DataType::kFloat32 &&
                         spec_of(problem.math).precision == Precision::kIeee;
  if (tile.arch != ArchId::kSm80 && !is_served) return false;
  int64_t const blocks = count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch) * shares;
  return tile.shared_bytes <= device.shared_memory &&
         blocks < (int64_t(1) << 30);  // kernels add to them
}

// Whether K may be cut that way.
inline bool suits_tf32x3(Raster const& raster) {
  return raster.direction == Raster::kAlongK && raster.count <= kMostShares &&
         (raster.count & (raster.count - 1)) == 0;
}

// Whether the blocks of a cluster share K of each tile among them, so that no pass adds up parts.
inline bool has_one_part(TileShapeTf32x3 const& tile, int shares, Problem const& problem,
                         Device const& device) {
  int64_t const tiles = count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch);
  return share_out_tf32x3(tile, shares, tiles, device).parts == 1;
}

// A tile with the cheapest number of shares. `in_parts`: also where a pass adds up parts of K.
inline ChoiceTf32x3 choose_shares(int tile, Problem const& problem, Device const& device,
                                  bool in_parts) {
  ChoiceTf32x3 best;
  TileShapeTf32x3 const& shape = TilesTf32x3::kShapes[tile];
  for (int shares = 1; shares <= kMostShares; shares *= 2) {
    if (!can_serve(shape, shares, problem, device)) break;
    if (!in_parts && !has_one_part(shape, shares, problem, device)) break;
    int64_t const cost = tile_cost_tf32x3(shape, shares, problem, device);
    if (cost < best.cost_ns) best = {tile, shares, cost};
  }
  return best;
}

inline ChoiceTf32x3 choose_tf32x3(Problem const& problem, Device const& device,
                                  bool in_parts = true) {
  ChoiceTf32x3 best;
  for (int tile = 0; tile < TilesTf32x3::kSize; ++tile) {
    ChoiceTf32x3 const choice = choose_shares(tile, problem, device, in_parts);
    if (choice.cost_ns < best.cost_ns) best = choice;
  }
  return best;
}

}  // namespace cutlass_fused
