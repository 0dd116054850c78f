// force_tile: every later product of the process uses this tile, "" returns to the estimates.
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

#include "cutlass_fused/plan/tile_names.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

void force_tile(std::string name) {
  TileOverride const* const tile = name.empty() ? nullptr : find_named_tile(name);
  STD_TORCH_CHECK(name.empty() || tile != nullptr,
                  "force_tile: name must be one of those that build_info() lists as tiles_..., or "
                  "'cublas', 'sm80', 'tf32x3' or 'split_rows', got '",
                  name, "'");
  forced_tile.store(tile, std::memory_order_release);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("force_tile", TORCH_BOX(&force_tile));
}

}  // namespace
}  // namespace cutlass_fused
