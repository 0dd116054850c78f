// The tile that every later call uses instead of the heuristic's: for tests and tuning.
#pragma once

#include <atomic>
#include <string>

#include "cutlass_fused/gemm/sm90/raster.hpp"
#include "cutlass_fused/gemm/sm80/tiles.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

// Whether the tile's kernel can take a problem that way.
inline bool suits(Raster const& raster, TileShapeSm90 const& tile) {
  return is_split(tile.schedule) == (raster.direction == Raster::kAlongK);
}

// One of cuBLAS, any SM80 kernel, and the two tiles. An SM80 tile concerns operands whose rows are
// aligned to 16 bytes: the narrow kernels have one tile each.
struct ForcedTile {
  bool cublas = false;
  bool any_sm80 = false;
  TileShape const* sm80 = nullptr;
  TileShapeSm90 const* sm90 = nullptr;
  bool has_raster = false;
  Raster raster;  // of the SM90 tile, where has_raster
};

// The name of cuBLAS's product with the epilogue behind it, among those of the tiles.
constexpr char kCublasName[] = "cublas";
// Of the SM80 kernel that the heuristic chooses.
constexpr char kSm80Name[] = "sm80";

// What it points to is never freed. Null: the heuristic chooses.
inline std::atomic<ForcedTile const*> forced_tile{nullptr};

}  // namespace cutlass_fused
