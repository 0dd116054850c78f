// Which SM90 kernel serves a call, if one can: by the layout of its operands and of y, the forced
// tile, the heuristic.
#pragma once

#include "cutlass_fused/gemm/choice.hpp"
#include "cutlass_fused/gemm/heuristic_sm90.hpp"

namespace cutlass_fused {

// TMA reads rows that start on 16 bytes and do not lie on top of each other, less than 2^40 bytes
// apart.
inline bool tma_reads_rows(int64_t rows, int64_t ld, int element_bytes) {
  return rows <= 1 || (ld > 0 && ld < (int64_t(1) << 40) / element_bytes);
}

inline bool tma_writes_rows(GemmArgs const& gemm, DataType type) {
  int const bytes = size_of(type);
  return gemm.y_type == type && reinterpret_cast<uintptr_t>(gemm.y) % 16 == 0 &&
         gemm.ldy * bytes % 16 == 0;
}

// Whether this tile's kernel can compute the problem.
inline bool can_serve(TileShapeSm90 const& tile, GemmArgs const& gemm, DataType type) {
  if (tile.output == Output::kTma && !tma_writes_rows(gemm, type)) return false;
  // Not persistent: one block to a tile, on a grid of at most 65535 along y.
  int64_t const columns = tile.operands == Operands::kSwapped ? gemm.m : gemm.n;
  return tile.schedule != ScheduleSm90::kSingle || ceil_div(columns, tile.n) <= 65535;
}

// kNone: an SM80 kernel serves it.
template <class Math>
Choice choose_kernel_sm90(GemmArgs const& gemm, Device const& device) {
  using Tiles = typename TilesSm90For<Math>::type;
  constexpr Choice kNone{KernelKind::kNone, -1, {}};
  int const element_bytes = size_of(Math::kIn);
  if (device.code != 90 || gemm.k == 0 || !fits_kernels(gemm.m, gemm.n, gemm.k) ||
      operand_alignment(gemm, element_bytes) != 16 ||
      !tma_reads_rows(gemm.m, gemm.ldx, element_bytes) ||
      !tma_reads_rows(gemm.n, gemm.ldw, element_bytes)) {
    return kNone;
  }
  ForcedTile const* const forced = forced_tile.load(std::memory_order_acquire);
  if (forced != nullptr) {
    if (forced->sm90 == nullptr) return kNone;
    for (int i = 0; i < Tiles::kSize; ++i) {
      TileShapeSm90 const& tile = Tiles::kShapes[i];
      if (tile.name() == forced->sm90->name() && can_serve(tile, gemm, Math::kOut)) {
        return {KernelKind::kAligned, i,
                forced->has_raster ? forced->raster : choose_raster(tile, gemm.m, gemm.n)};
      }
    }
    return {KernelKind::kUnknownTile, -1, {}};
  }
  int best = -1;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < Tiles::kSize; ++i) {
    TileShapeSm90 const& tile = Tiles::kShapes[i];
    if (!can_serve(tile, gemm, Math::kOut)) continue;
    int64_t const cost =
        tile_cost_sm90(tile, {gemm.m, gemm.n, gemm.k, element_bytes, Math::kEngine}, device);
    if (cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  if (best < 0) return kNone;
  return {KernelKind::kAligned, best, choose_raster(Tiles::kShapes[best], gemm.m, gemm.n)};
}

}  // namespace cutlass_fused
