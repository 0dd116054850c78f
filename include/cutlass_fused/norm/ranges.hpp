// How a matrix is cut into ranges of rows for the statistics of its columns: plain host integers.
#pragma once

#include <vector_types.h>

#include <algorithm>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Range i holds the rows from i * rows_per_range on, the last one what is left. Of every column and
// range the workspace holds the mean and M2 = sum((x - mean)^2): (count, columns).
struct Ranges {
  int64_t count, rows_per_range;
  size_t bytes(int64_t columns) const { return size_t(count * columns) * sizeof(float2); }
  size_t shifts_bytes(int64_t columns) const { return size_t(count * columns) * sizeof(float); }
};

// A mean so many times as large as the distances to it is worth a shift: these are less than what
// two neighbouring numbers of 16 bits are apart there. Numbers that are not lie on both sides of
// several of these, and their roundings do not move the mean.
inline float far_mean(DataType type) {
  return for_type(type, [](auto row) { return TypeTraits<row()>::kInverseEps; });
}

// What the kernel of a product writes beside z, whose tiles have the rows of ranges.
struct PartPointers {
  uint64_t* parts;  // of PartStatistics (norm/statistics/part_statistics.hpp)
  float far_mean;   // of z's type
  // (ranges, columns): less what z is stored, of 16 bits, and the mean of its part; null where both
  // are stored as they are.
  float* shifts;
};

// For a matrix that is not empty.
inline Ranges choose_ranges(Matrix const& x, Device const& device) {
  // At least 32 rows to a block, eight to a thread, and at most 512, so that a thread's fp32 sums
  // stay short. In between as many blocks as are resident at once, four to an SM where rows are
  // aligned: with two or four times as many the statistics took longer on an H200.
  constexpr int64_t kLeastRows = 32, kMostRows = 512;
  constexpr int64_t kBlocksPerSm = 4, kBytesOfBlock = 1024;
  int64_t const column_blocks = ceil_div(x.columns * size_of(x.type), kBytesOfBlock);
  int64_t const wanted = std::max<int64_t>(1, kBlocksPerSm * device.sm_count / column_blocks);
  // A grid has at most 65535 blocks along y; that bound comes last.
  int64_t const rows = std::max(std::clamp(ceil_div(x.rows, wanted), kLeastRows, kMostRows),
                                ceil_div(x.rows, 65535));
  return {ceil_div(x.rows, rows), rows};
}

}  // namespace cutlass_fused
