// The tile that every later call uses instead of the heuristic's: for tests and tuning.
#pragma once

#include <atomic>
#include <string>

#include "cutlass_fused/gemm/raster_sm90.hpp"
#include "cutlass_fused/gemm/tiles_sm80.hpp"
#include "cutlass_fused/gemm/tiles_sm90.hpp"

namespace cutlass_fused {

// Whether the tile's kernel can take a problem that way.
inline bool suits(Raster const& raster, TileShapeSm90 const& tile) {
  return is_split(tile.schedule) == (raster.direction == Raster::kAlongK);
}

// One of the two is not null. It concerns operands whose rows are aligned to 16 bytes: the narrow
// SM80 kernels have one tile each.
struct ForcedTile {
  TileShape const* sm80 = nullptr;
  TileShapeSm90 const* sm90 = nullptr;
  bool has_raster = false;
  Raster raster;  // of the SM90 tile, where has_raster
};

// What it points to is never freed. Null: the heuristic chooses.
inline std::atomic<ForcedTile const*> forced_tile{nullptr};

}  // namespace cutlass_fused
