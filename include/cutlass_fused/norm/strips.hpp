// A batch norm of z while the product that computes z still runs: declarations only.
//
// The product takes z in panels of some strips of columns, all rows of a panel before the next one,
// on a few SMs less than there are where that costs it no wave. There, and on all SMs when it ends,
// the kernel behind it merges the statistics of the strips that are complete, and normalizes them.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"

namespace cutlass_fused {

constexpr int kColumnsOfStrip = 256;
constexpr int kStripsOfPanel = 4;

// What the kernels tell each other and themselves: all zero in front of the product.
struct StripCounters {
  unsigned* tiles;   // of every strip: its tiles that are in memory
  unsigned* merged;  // of every strip: whether its statistics are
  unsigned* next;    // unit of work

  static int64_t strips(int64_t columns) { return ceil_div(columns, int64_t(kColumnsOfStrip)); }
  static size_t bytes(int64_t columns) { return (2 * strips(columns) + 1) * sizeof(unsigned); }
  static StripCounters make(void* workspace, int64_t columns) {
    auto* const tiles = static_cast<unsigned*>(workspace);
    return {tiles, tiles + strips(columns), tiles + 2 * strips(columns)};
  }
};

// y = (z - mean) * rstd * gamma + beta with the statistics of z, from its product's parts; and all
// that run_merge_statistics writes, of which it must be given a centre. z and y are contiguous
// matrices of 16-bit numbers with rows aligned to 16 bytes; y may be z. `tile_columns`: of the
// product's tiles, which have as many rows as the ranges.
template <DataType kIn>
Status run_normalize_strips(Matrix const& z, Ranges const& ranges, int tile_columns,
                            void const* parts, StripCounters const& counters, Vector const& gamma,
                            Vector const& beta, float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored, void* y,
                            Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
