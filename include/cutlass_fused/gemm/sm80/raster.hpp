// The order in which data-parallel blocks walk over the output tiles.
#pragma once

#include "cutlass/gemm_coord.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"

namespace cutlass_fused {

// Panels of 2^log columns of tiles, row by row: blocks that run at the same time share the rows of
// x and of weight that they read, in L2. CUTLASS's GemmIdentityThreadblockSwizzle has the same
// order on a two-dimensional grid, whose y extent of 65535 limits N; this grid is a line.
struct RasterSm80 {
  static constexpr int kLogBits = 4;

  CUTLASS_HOST_DEVICE static cutlass::gemm::GemmCoord get_tiled_shape(
      cutlass::gemm::GemmCoord problem, cutlass::gemm::GemmCoord tile, int slices) {
    return {(problem.m() - 1) / tile.m() + 1, (problem.n() - 1) / tile.n() + 1, slices};
  }

  // All that a block needs to find its tile, in the one integer that CUTLASS carries: the number of
  // tiles along M, and the log of the panel's width.
  CUTLASS_HOST_DEVICE static int get_log_tile(cutlass::gemm::GemmCoord tiled) {
    int const log = tiled.n() >= 6 ? 3 : tiled.n() >= 3 ? 2 : tiled.n() >= 2 ? 1 : 0;
    return tiled.m() << kLogBits | log;
  }

  CUTLASS_HOST_DEVICE static dim3 get_grid_shape(cutlass::gemm::GemmCoord tiled) {
    int const width = 1 << (get_log_tile(tiled) & ((1 << kLogBits) - 1));
    int const panels = (tiled.n() - 1) / width + 1;
    return dim3(unsigned(tiled.m()) * unsigned(panels) * unsigned(width));
  }

  CUTLASS_DEVICE static cutlass::gemm::GemmCoord get_tile_offset(int packed) {
    int const log = packed & ((1 << kLogBits) - 1);
    unsigned const rows = unsigned(packed) >> kLogBits;
    unsigned const index = blockIdx.x >> log;
    unsigned const column = blockIdx.x & ((1u << log) - 1);
    return {int(index % rows), int((index / rows << log) + column), 0};
  }
};

}  // namespace cutlass_fused
