// The ArchSpec of SM100 kernels, a skeleton: one tile, for bf16 products alone. Plain host
// integers.
#pragma once

#include "cutlass_fused/gemm/sm100/tiles.hpp"
#include "cutlass_fused/plan/arch_spec.hpp"
#include "cutlass_fused/gemm/tma_rows.hpp"

namespace cutlass_fused {

// The kernel's grid and TMA's coordinates are of 32 bits: so many rows and columns it counts.
inline bool can_serve_sm100(Problem const& problem) {
  constexpr int64_t kEnd = (int64_t(1) << 31) - 256;
  return problem.k > 0 && problem.m <= kEnd && problem.n <= kEnd &&
         tma_writes_rows(problem, spec_of(problem.math).type);
}

// A guess that nothing was fitted to. With one tile there is nothing to choose.
inline int64_t tile_cost_sm100(Problem const& problem, Device const& device) {
  constexpr int64_t kStageNs = 150;
  int64_t const tiles = ceil_div(problem.m, sm100::Tile::kM) * ceil_div(problem.n, sm100::Tile::kN);
  int64_t const stages =
      ceil_div(problem.multiplied_k() * problem.operand_bytes(), sm100::Tile::kBytesK);
  return ceil_div(tiles, device.sm_count) * stages * kStageNs;
}

inline ArchSpec const& spec_sm100() {
  static constexpr ArchSpec kSpec{
      ArchId::kSm100,
      "sm100",
      [](MathId math) { return math == MathId::kBf16 ? 1 : 0; },
      [](MathId, int) { return sm100::Tile::name(); },
      [](Problem const& problem) {
        return tma_reads_x(problem) && tma_reads_weight(problem) ? ReadBy::kTiles : ReadBy::kNone;
      },
      [](int, Problem const& problem, Device const&) { return can_serve_sm100(problem); },
      [](int, Problem const&, Device const&) { return true; },
      [](int, Problem const& problem, Device const& device) {
        return Estimate{{}, tile_cost_sm100(problem, device)};
      },
      [](int, Problem const&, int64_t, Device const&) -> int64_t { return 0; },
      [](MathId, int, Raster const&) { return false; },
      [](MathId, int) { return std::vector<char const*>{}; },
      [](MathId, int) { return TileSize{sm100::Tile::kM, sm100::Tile::kN}; }};
  return kSpec;
}

}  // namespace cutlass_fused
