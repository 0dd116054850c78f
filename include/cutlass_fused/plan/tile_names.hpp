// From the name of a tile to the tile.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "cutlass_fused/plan/forced_tile.hpp"

namespace cutlass_fused {

template <class Shapes>
auto find_tile(Shapes const& shapes, std::string const& name) -> decltype(&shapes[0]) {
  for (auto const& tile : shapes) {
    if (tile.name() == name) return &tile;
  }
  return nullptr;
}

// "128x256x64B" is an SM80 tile; "128x128x128B/2x1.pingpong" an SM90 tile, "...@m4" with a raster
// that suits it; "cublas" and "sm80" are no tiles, but can be forced too. False: none of them.
inline bool parse_tile(std::string const& name, ForcedTile& tile) {
  tile.cublas = name == kCublasName;
  tile.any_sm80 = name == kSm80Name;
  tile.sm80 = find_tile(TilesSm80::kShapes, name);
  if (tile.sm80 == nullptr) tile.sm80 = find_tile(TilesSm80Fp16x3::kShapes, name);
  size_t const at = name.find('@');
  std::string const sm90 = name.substr(0, at);
  tile.sm90 = find_tile(sm90::Tiles::kShapes, sm90);
  if (tile.sm90 == nullptr) tile.sm90 = find_tile(sm90::TilesFp16x3::kShapes, sm90);
  if (tile.sm90 == nullptr) tile.sm90 = find_tile(sm90::TilesFp16x1::kShapes, sm90);
  tile.has_raster = at != std::string::npos;
  bool const raster =
      !tile.has_raster || (tile.sm90 != nullptr && parse_raster(name.substr(at + 1), tile.raster) &&
                           suits(tile.raster, *tile.sm90));
  return tile.cublas || tile.any_sm80 || tile.sm80 != nullptr || (tile.sm90 != nullptr && raster);
}

// The tile of this name, null if there is none. It is never freed: a call that runs meanwhile may
// still read what was chosen before.
inline ForcedTile const* find_named_tile(std::string const& name) {
  static std::mutex mutex;
  static auto* const tiles = new std::map<std::string, ForcedTile>;
  ForcedTile tile;
  if (!parse_tile(name, tile)) return nullptr;
  std::lock_guard<std::mutex> const lock(mutex);
  return &tiles->emplace(name, tile).first->second;
}

}  // namespace cutlass_fused
