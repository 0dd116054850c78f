// How passes of a backward pass that add up columns share out a matrix: plain integers.
#pragma once

#include <algorithm>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A block takes rows of a strip by turns, and as many columns as 32 threads read in pieces of 16
// bytes.
struct GradientBlock {
  static constexpr int kLanes = 32, kLines = 8, kThreads = kLanes * kLines;
  static constexpr int kUnderWay = 4;  // rows of a thread
  static constexpr int kMostStrips = 256;
  // On an SM at a time, by the registers that passes with two matrices take: with 4 rows of both
  // under way 96 KB, where some 40 KB cover the latency of an H100's memory.
  static constexpr int kBlocksPerSm = 3;

  static constexpr int width(DataType type) { return 16 / size_of(type); }
  static constexpr int columns(DataType type) { return kLanes * width(type); }
};

// How the rows are shared out: so many to a strip, of which there are kMostStrips at most.
struct GradientStrips {
  int64_t rows, count;

  // As many strips as the GPU has room for at a time, so that all blocks end together. Where so few
  // would leave a part of it without a block, more: the last of several waves counts less.
  static GradientStrips make(int64_t m, int64_t n, DataType type, Device const& device) {
    constexpr int64_t kTurn = GradientBlock::kLines, kFewStrips = 4, kWaves = 8;
    int64_t const panels = std::max(ceil_div(n, int64_t(GradientBlock::columns(type))), int64_t(1));
    int64_t const resident = int64_t(GradientBlock::kBlocksPerSm) * device.sm_count;
    int64_t const wanted =
        resident >= kFewStrips * panels ? resident / panels : ceil_div(kWaves * resident, panels);
    int64_t const turns =
        ceil_div(m, std::min(wanted, int64_t(GradientBlock::kMostStrips)) * kTurn);
    int64_t const rows = std::max(turns, int64_t(GradientBlock::kUnderWay)) * kTurn;
    return {rows, ceil_div(m, rows)};
  }
};

}  // namespace cutlass_fused
