// What a bare product of 16-bit matrices along K takes our kernels for 9.0, and what it takes
// cuBLAS. Plain host integers, nanoseconds in a CUDA graph, fitted to 71 products in bf16 and fp16
// on an H200, of 32 x 512 x 3136 to 65536 x 256 x 256 and 16384 x 4096 x 4096, so that the choice
// between the two is right, not that each time is: cuBLAS's rather low. y in fp32 was not timed,
// and counts as if it had 16 bits.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/gemm/sm90/estimates.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// Its estimate lacks the launch, which is longer of a persistent kernel, and says too much of work
// that overlaps; a long one runs at a lower clock. Tiles of a short K do not hide how they are
// written.
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

// `plan`: by a tile for 9.0.
inline int64_t cost_of_own_16_bit(Plan const& plan, Problem const& problem, Device const& device) {
  Problem const copied = with_copies(problem, plan.copies);
  ArchSpec const& arch = spec_of(plan.product.arch);
  TileShapeSm90 const& tile = tiles_sm90(problem.math).shapes[plan.product.tile];
  int64_t const estimate = arch.estimate(plan.product.tile, copied, device).cost;
  int64_t const cost = estimate + arch.surcharge(plan.product.tile, copied, estimate);
  return cost_of_tile_sm90(tile, problem, cost, device) +
         cost_of_any_rows(tile, problem, plan.copies);
}

// Of rows that do not begin at multiples of 16 bytes, and of others that do not at those of 4, it
// has slower kernels.
inline int64_t percent_of_pieces(Problem const& problem) {
  constexpr int64_t kPiecesPercent = 229, kNumbersPercent = 363;
  int64_t const bytes = problem.operand_bytes();
  auto const is_whole = [&](int64_t piece) {
    auto const holds = [&](Rows const& rows, int64_t count) {
      return rows.alignment % piece == 0 && (count <= 1 || rows.ld * bytes % piece == 0);
    };
    bool const y_is_whole = problem.n == 1 || holds(problem.y, problem.m);
    return holds(problem.x, problem.m) && holds(problem.weight, problem.n) && y_is_whole &&
           problem.k * bytes % piece == 0;
  };
  return is_whole(16) ? 100 : is_whole(4) ? kPiecesPercent : kNumbersPercent;
}

inline int64_t cost_of_cublas_16_bit(Problem const& problem) {
  constexpr double kLaunchNs = 1924, kFlopsPerNs = 1384000;
  constexpr double kReadBytesPerNs = 7936, kWrittenBytesPerNs = 3166;
  constexpr double kStageNs = 398, kLongNs = 50000, kSlower = 1.0;
  constexpr int64_t kTile = 64, kFewTiles = 132;
  double const m = double(problem.m), n = double(problem.n), k = double(problem.k);
  double const bytes = problem.operand_bytes();
  double const outputs =
      double(ceil_div(problem.m, kTile) * kTile) * double(ceil_div(problem.n, kTile) * kTile);
  double ns = 2 * outputs * k / kFlopsPerNs + bytes * (m + n) * k / kReadBytesPerNs +
              bytes * m * n / kWrittenBytesPerNs;
  // Few tiles do not hide the latency of their stages.
  bool const is_few = ceil_div(problem.m, 2 * kTile) * ceil_div(problem.n, kTile) < kFewTiles;
  if (is_few) ns += kStageNs * std::log2(1 + k / 64);
  ns = ns * double(percent_of_pieces(problem)) / 100;
  return int64_t(kLaunchNs + ns + std::max(ns - kLongNs, 0.0) * kSlower);
}

}  // namespace cutlass_fused
