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
// than two blocks leaves SMs idle where there are more blocks than SMs.
inline SharesTf32x3 share_out_tf32x3(int shares, int64_t tiles, Device const& device) {
  bool const few = shares <= kMostSlices && tiles * shares <= device.sm_count;
  int const slices = device.code < 90 ? 1 : few ? shares : std::min(shares, 2);
  return {slices, shares / slices};
}

inline int64_t count_tiles_tf32x3(TileShapeTf32x3 const& tile, int64_t m, int64_t n,
                                  int64_t batch) {
  return ceil_div(m, int64_t(tile.m)) * ceil_div(n, int64_t(tile.n)) * batch;
}

// The sums of one part.
inline int64_t partial_sums_tf32x3(TileShapeTf32x3 const& tile, int64_t m, int64_t n,
                                   int64_t batch) {
  return count_tiles_tf32x3(tile, m, n, batch) * tile.m * tile.n;
}

// Bytes: the sums of every part, and how many of these are there for each block's rows.
inline int64_t workspace_tf32x3(TileShapeTf32x3 const& tile, SharesTf32x3 const& shares, int64_t m,
                                int64_t n, int64_t batch) {
  if (shares.parts == 1) return 0;
  int64_t const tiles = count_tiles_tf32x3(tile, m, n, batch);
  return 4 * (partial_sums_tf32x3(tile, m, n, batch) * shares.parts + tiles * shares.slices);
}

}  // namespace cutlass_fused
