// Which SM80 kernel finds the statistics of its result, if one does. Plain host integers.
#pragma once

#include "cutlass_fused/norm/ranges.hpp"
#include "cutlass_fused/plan/choice.hpp"

namespace cutlass_fused {

// Whether a tile's kernel can: a block computes the whole of a tile, and as one of those for large
// products.
constexpr bool can_find_statistics(Schedule schedule, int rows) {
  return schedule == Schedule::kDataParallel && rows >= 128;
}
inline bool can_find_statistics(TileShape const& tile) {
  return can_find_statistics(tile.schedule, tile.m);
}

// What a pass over z costs, for an A100: three quarters of the bandwidth in its data sheet. No time
// was taken on one.
inline int64_t cost_of_pass(GemmArgs const& gemm) {
  constexpr int64_t kLaunchNs = 4000, kBytesPerUs = 1500000;
  return kLaunchNs + gemm.m * gemm.n * size_of(gemm.y_type) * 1000 / kBytesPerUs;
}

// The index of the tile, for a product whose kernel was chosen; or -1, if z is to be read again, as
// from compute capability 9.0 on: there a batch norm of its own behind the same tile took 96 to
// 100% of the time (H200, models 33 and 39). A tile that was forced, or tuned to, stays the same.
// Of the others the one that is cheapest together with the passes behind it.
template <class Math>
int choose_statistics_tile_sm80(GemmArgs const& gemm, Choice const& choice, Device const& device) {
  using Tiles = typename TilesSm80For<Math>::type;
  constexpr int64_t kLeastBytesOfZ = 1 << 20;  // launches take longer than passes over less
  if (choice.kind != KernelKind::kAligned) return -1;
  auto const if_it_can = [](int tile) {
    return can_find_statistics(Tiles::kShapes[tile]) ? tile : -1;
  };
  if (forced_tile.load(std::memory_order_acquire) != nullptr) return if_it_can(choice.tile);
  if (device.code >= 90 || gemm.m * gemm.n * size_of(gemm.y_type) < kLeastBytesOfZ) return -1;
  Problem const problem = make_problem<Math>(gemm);
  if (choice.tile != choose_tile<Tiles>(problem, device)) return if_it_can(choice.tile);
  int best = -1;
  int64_t best_cost = tile_cost(Tiles::kShapes[choice.tile], problem, device) + cost_of_pass(gemm);
  for (int i = 0; i < Tiles::kSize; ++i) {
    TileShape const& tile = Tiles::kShapes[i];
    if (!can_find_statistics(tile) || tile.shared_memory() > device.shared_memory) continue;
    int64_t const cost = tile_cost(tile, problem, device);
    if (cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  return best;
}

// The ranges of rows whose statistics it writes.
template <class Math>
Ranges ranges_of_tiles(int64_t rows, int tile) {
  int64_t const rows_of_tile = TilesSm80For<Math>::type::kShapes[tile].m;
  return {ceil_div(rows, rows_of_tile), rows_of_tile};
}

}  // namespace cutlass_fused
