// force_tile: every later GEMM of the process uses this tile, "" returns to the heuristic.
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

#include "cutlass_fused/gemm/choice.hpp"

namespace cutlass_fused {
namespace {

template <class Tiles>
TileShape const* find_tile(std::string const& name) {
  for (TileShape const& tile : Tiles::kShapes) {
    if (tile.name() == name) return &tile;
  }
  return nullptr;
}

void force_tile(std::string name) {
  TileShape const* tile = nullptr;
  if (!name.empty()) {
    tile = find_tile<TilesSm80>(name);
    if (tile == nullptr) tile = find_tile<TilesSm80Split>(name);
    STD_TORCH_CHECK(tile != nullptr,
                    "force_tile: name must be one of tiles_sm80 in build_info(), got '", name, "'");
  }
  forced_tile.store(tile, std::memory_order_release);
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CompositeExplicitAutograd, m) {
  m.impl("force_tile", TORCH_BOX(&force_tile));
}

}  // namespace
}  // namespace cutlass_fused
