// The ArchSpec of SM90 kernels: what a plan knows of them. Plain host integers.
#pragma once

#include "cutlass_fused/gemm/sm90/estimates.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/plan.hpp"

namespace cutlass_fused {

// Copies of rows that TMA cannot read or write. They take less time than the SM80 kernels for such
// rows would lose. That of y is left out where the cheapest tile needs none.
inline Copies choose_copies_sm90(Problem const& problem) {
  constexpr int64_t kManyRows = 512;  // with fewer, the copy costs more than a better tile saves
  DataType const type = spec_of(problem.math).type;
  if (problem.engine() != Engine::kPlain || problem.k == 0) return {};
  return {!tma_reads_x(problem), !tma_reads_weight(problem),
          problem.y_type == type && problem.m >= kManyRows && !tma_writes_rows(problem, type)};
}

inline ArchSpec const& spec_sm90() {
  static constexpr auto kShape = [](MathId math, int tile) -> TileShapeSm90 const& {
    return tiles_sm90(math).shapes[tile];
  };
  static constexpr ArchSpec kSpec{
      ArchId::kSm90,
      "sm90",
      [](MathId math) { return tiles_sm90(math).count; },
      [](MathId math, int tile) { return kShape(math, tile).name(); },
      [](Problem const& problem) {
        return tma_reads_x(problem) && tma_reads_weight(problem) ? ReadBy::kTiles : ReadBy::kNone;
      },
      [](int tile, Problem const& problem, Device const&) {
        return can_serve(kShape(problem.math, tile), problem);
      },
      [](int tile, Problem const& problem, Device const& device) {
        return is_worth_an_estimate(kShape(problem.math, tile), problem, device);
      },
      [](int tile, Problem const& problem, Device const& device) {
        return estimate_tile(kShape(problem.math, tile), problem, device);
      },
      [](int tile, Problem const& problem, int64_t cost, Device const& device) {
        TileShapeSm90 const& shape = kShape(problem.math, tile);
        return cost_of_power(shape, problem, cost, device) + cost_of_copying_back(shape, problem);
      },
      [](MathId math, int tile, Raster const& raster) { return suits(raster, kShape(math, tile)); },
      [](MathId math, int tile) {
        ScheduleSm90 const schedule = kShape(math, tile).schedule;
        if (schedule == ScheduleSm90::kSingle) return std::vector<char const*>{};
        return slices_k(schedule) ? std::vector<char const*>{"k1", "k2", "k3", "k4"}
                                  : std::vector<char const*>{"m1", "m2", "n2", "n4"};
      },
      [](MathId math, int tile) {
        TileShapeSm90 const& shape = kShape(math, tile);
        bool const swapped = shape.operands == Operands::kSwapped;
        return swapped ? TileSize{shape.n, shape.m} : TileSize{shape.m, shape.n};
      },
      choose_copies_sm90,
      [](MathId math, int tile) { return kShape(math, tile).output != Output::kTma; },
      choose_logits_sm90,
      plan_norm_sm90,
      [] { return TimedSm90<GroupTile, 0, 0>::kShape.name(); },
      [](MathId math) { return spec_of(math).engine == Engine::kFp16x3; },
      [](int tile, Problem const& problem, Copies const& copies, int64_t estimate,
         Device const& device) {
        return cost_of_bare_sm90(kShape(problem.math, tile), problem, copies, estimate, device);
      },
      /*reads_along_n=*/true,
      /*has_open=*/true};
  return kSpec;
}

}  // namespace cutlass_fused
