// How K is shared out among blocks, and the memory that this takes. Plain host integers.
#pragma once

#include <algorithm>

#include "cutlass_fused/common/types.hpp"
#include "cutlass_fused/gemm/tf32x3/tiles.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// Blocks of a cluster exchange their sums of a slice of K each through shared memory; those of
// several parts do so through global memory, which takes longer.
struct SharesTf32x3 {
  int slices = 1, parts = 1;
};

// `shares`, a power of two, of so many tiles. GPUs before 9.0 have no clusters. A cluster of more
// than two blocks leaves SMs idle where there are more blocks than SMs; one of eight blocks that
// need an SM each does so in any case.
inline SharesTf32x3 share_out_tf32x3(TileShapeTf32x3 const& tile, int shares, int64_t tiles,
                                     Device const& device) {
  bool const is_large = tile.blocks_per_sm == 1;
  int const most = is_large ? 4 : kMostSlices, otherwise = is_large ? 1 : std::min(shares, 2);
  bool const few = shares <= most && tiles * shares <= device.sm_count;
  int const slices = device.code < 90 ? 1 : few ? shares : otherwise;
  return {slices, shares / slices};
}

inline int64_t count_tiles_tf32x3(TileShapeTf32x3 const& tile, int64_t m, int64_t n,
                                  int64_t batch) {
  return ceil_div(m, int64_t(tile.m)) * ceil_div(n, int64_t(tile.n)) * batch;
}

// Bytes: the sums of every part.
inline int64_t workspace_tf32x3(TileShapeTf32x3 const& tile, SharesTf32x3 const& shares, int64_t m,
                                int64_t n, int64_t batch) {
  if (shares.parts == 1) return 0;
  return 4 * count_tiles_tf32x3(tile, m, n, batch) * tile.m * tile.n * shares.parts;
}

}  // namespace cutlass_fused
