// Which SM90 kernel serves a call, if one can: by the layout of its operands and of y, the forced
// tile, the heuristic.
#pragma once

#include "cutlass_fused/plan/choice.hpp"
#include "cutlass_fused/plan/heuristic_sm90.hpp"
#include "cutlass_fused/common/memo.hpp"

namespace cutlass_fused {

// TMA reads rows that start on 16 bytes and do not lie on top of each other, less than 2^40 bytes
// apart. They may end anywhere.
inline bool tma_reads_rows(void const* data, int64_t rows, int64_t ld, int element_bytes) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  return rows <= 1 ||
         (ld > 0 && ld * element_bytes % 16 == 0 && ld < (int64_t(1) << 40) / element_bytes);
}

inline bool tma_reads_operands(GemmArgs const& gemm, DataType type) {
  return tma_reads_rows(gemm.x, gemm.m, gemm.ldx, size_of(type)) &&
         tma_reads_rows(gemm.weight, gemm.n, gemm.ldw, size_of(type));
}

inline bool tma_writes_rows(GemmArgs const& gemm, DataType type) {
  int const bytes = size_of(type);
  return gemm.y_type == type && reinterpret_cast<uintptr_t>(gemm.y) % 16 == 0 &&
         gemm.ldy * bytes % 16 == 0;
}

// Whether CUTLASS's kernels, which count in 32 bits, can count the rows and columns up to the end
// of the widest panel.
inline bool can_count(TileShapeSm90 const& tile, GemmArgs const& gemm) {
  constexpr int64_t kWidestPanel = 8, kEnd = int64_t(1) << 31;
  bool const swapped = tile.operands == Operands::kSwapped;
  int64_t const rows = kWidestPanel * tile.cluster_m * tile.m;
  int64_t const columns = kWidestPanel * tile.cluster_n * tile.n;
  return ceil_div(swapped ? gemm.n : gemm.m, rows) * rows <= kEnd &&
         ceil_div(swapped ? gemm.m : gemm.n, columns) * columns <= kEnd;
}

// Whether this tile's kernel can compute the problem.
inline bool can_serve(TileShapeSm90 const& tile, GemmArgs const& gemm, DataType type) {
  if (tile.output == Output::kTma && !tma_writes_rows(gemm, type)) return false;
  if (is_split(tile.schedule) && gemm.y_type != type && !can_promote(tile.n)) return false;
  if (!is_split(tile.schedule) && !can_count(tile, gemm)) return false;
  // Not persistent: one block to a tile, on a grid of at most 65535 along y.
  int64_t const columns = tile.operands == Operands::kSwapped ? gemm.m : gemm.n;
  return is_persistent(tile.schedule) || ceil_div(columns, tile.n) <= 65535;
}

// Split kernels share no loads between blocks, of which the estimate knows nothing: with more than
// a few tiles of rows they took up to 2.9 times as long as the bare cuBLAS product. Up to four do
// no harm where all blocks run at once.
inline bool is_worth_an_estimate(TileShapeSm90 const& tile, GemmArgs const& gemm,
                                 Device const& device) {
  TileGrid const grid = count_tiles(tile, gemm.m, gemm.n);
  return !is_split(tile.schedule) || grid.n <= 2 ||
         (grid.n <= 4 && grid.m * grid.n <= device.sm_count);
}

// A product of 16-bit numbers that takes long meets the limit of the GPU's power, it seems, and by
// less with the swapped pingpong tile. One after another, six of six products of 0.7 to 2.9 ms took
// 2 to 6% less time with it than with cooperative tiles on an H200; four of 0.09 to 0.33 ms took
// from 1% less to 3% more. In turns with other kernels 16384 x 4096 x 4096 took 0.5 to 1.3% more,
// now that cooperative tiles read vectors ahead: it reads 1.4 times as much from L2, at a lower
// clock.
inline int64_t cost_of_power(TileShapeSm90 const& tile, Problem const& problem, int64_t cost_ns) {
  constexpr int64_t kLongNs = 600000, kPercent = 12;
  bool const spares =
      tile.schedule == ScheduleSm90::kPingpong && tile.operands == Operands::kSwapped;
  return splits_rows(problem.engine) || cost_ns <= kLongNs || spares ? 0 : cost_ns * kPercent / 100;
}

// By the estimates. kNone: no tile can serve.
template <class Math>
Choice choose_cheapest(GemmArgs const& gemm, Problem const& problem, Device const& device) {
  using Tiles = typename TilesSm90For<Math>::type;
  Choice best{KernelKind::kNone, -1, {}};
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < Tiles::kSize; ++i) {
    TileShapeSm90 const& tile = Tiles::kShapes[i];
    if (!can_serve(tile, gemm, Math::kOut) || !is_worth_an_estimate(tile, gemm, device)) continue;
    Estimate const estimate = estimate_tile<Math>(i, problem, device);
    int64_t const cost = estimate.cost + cost_of_power(tile, problem, estimate.cost);
    if (cost < best_cost) {
      best = {KernelKind::kAligned, i, estimate.raster};
      best_cost = cost;
    }
  }
  return best;
}

// kNone: an SM80 kernel serves it.
template <class Math>
Choice choose_kernel_sm90(GemmArgs const& gemm, Device const& device) {
  using Tiles = typename TilesSm90For<Math>::type;
  constexpr Choice kNone{KernelKind::kNone, -1, {}}, kUnknown{KernelKind::kUnknownTile, -1, {}};
  constexpr DataType kOperand = operand_type<Math>;
  Problem const problem = make_problem<Math>(gemm);
  if (device.code != 90 || gemm.k == 0 || !fits_kernels(problem.m, problem.n, problem.k) ||
      !tma_reads_operands(gemm, kOperand)) {
    return kNone;
  }
  ForcedTile const* const forced = forced_tile.load(std::memory_order_acquire);
  if (forced != nullptr) {
    if (forced->sm90 == nullptr) return kNone;
    if (forced->has_raster && !suits(forced->raster, *forced->sm90)) return kUnknown;
    for (int i = 0; i < Tiles::kSize; ++i) {
      TileShapeSm90 const& tile = Tiles::kShapes[i];
      if (tile.name() == forced->sm90->name() && can_serve(tile, gemm, Math::kOut)) {
        return {
            KernelKind::kAligned, i,
            forced->has_raster ? forced->raster : estimate_tile<Math>(i, problem, device).raster};
      }
    }
    return kUnknown;
  }
  // Beside the GPU's SMs this is all that the cheapest tile depends on. Kept, since there are more
  // estimates to make than a launch has time for.
  static thread_local Memo<Choice> memo;
  LaunchKey const key{gemm.m,
                      gemm.n,
                      gemm.k,
                      tma_writes_rows(gemm, Math::kOut),
                      static_cast<int64_t>(gemm.y_type),
                      device.sm_count};
  return *memo.find(key, [&](Choice& choice) {
    choice = choose_cheapest<Math>(gemm, problem, device);
    return true;
  });
}

}  // namespace cutlass_fused
