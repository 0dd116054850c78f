// From the name of a tile to the tile.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "cutlass_fused/gemm/tf32x3/spec.hpp"
#include "cutlass_fused/plan/archs.hpp"
#include "cutlass_fused/plan/overrides.hpp"

namespace cutlass_fused {

// Calls visit(arch, math, index) for each tile of each table, until that returns true.
template <class Visit>
bool find_any_tile(Visit const& visit) {
  for (ArchId arch : kNewestFirst) {
    for (MathId math : kMathIds) {
      for (int i = 0; i < spec_of(arch).count(math); ++i) {
        if (visit(spec_of(arch), math, i)) return true;
      }
    }
  }
  return false;
}

// "128x256x64B" is a tile, "128x128x128B/2x1.pingpong@m4" one with a raster that suits it; the name
// tells the generation. "cublas" and "sm80" are no tiles, but can be forced too. False: none of
// them.
inline bool parse_tile(std::string const& name, TileOverride& tile) {
  tile = {};
  tile.cublas = name == kCublasName;
  tile.any_tile = name == kSm80Name;
  tile.tf32x3 = name == kTf32x3Name;
  tile.splits_rows = name == kSplitRowsName;
  if (tile.cublas || tile.any_tile || tile.tf32x3 || tile.splits_rows) return true;
  size_t const at = name.find('@');
  tile.tile = name.substr(0, at);
  tile.has_raster = at != std::string::npos;
  if (tile.has_raster && !parse_raster(name.substr(at + 1), tile.raster)) return false;
  tile.tf32x3 = find_tile_tf32x3(tile.tile) >= 0;
  if (tile.tf32x3) return !tile.has_raster || suits_tf32x3(tile.raster);
  return find_any_tile([&](ArchSpec const& arch, MathId math, int i) {
    if (arch.name_tile(math, i) != tile.tile) return false;
    tile.arch = arch.id;
    return !tile.has_raster || arch.takes(math, i, tile.raster);
  });
}

// The tile of this name, null if there is none. It is never freed: a call that runs meanwhile may
// still read what was chosen before.
inline TileOverride const* find_named_tile(std::string const& name) {
  static std::mutex mutex;
  static auto* const tiles = new std::map<std::string, TileOverride>;
  TileOverride tile;
  if (!parse_tile(name, tile)) return nullptr;
  std::lock_guard<std::mutex> const lock(mutex);
  return &tiles->emplace(name, tile).first->second;
}

}  // namespace cutlass_fused
